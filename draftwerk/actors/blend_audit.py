"""The audit of reused segments: a share of their prompts is read exactly too, and compared.

The certificate says what reusing segments changes on the prompts that it was measured with. Clients
have others. So the first token's distribution is computed over the reused segments and exactly,
when the engine is idle; past the certificate's bound segments are reused no more, until they may
be.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log

import msgspec

from draftwerk.actors.errors import BlendOffError
from draftwerk.actors.idle_queue import LAST, Audited, IdleQueue
from draftwerk.actors.messages import Delta, Failed, Options, Prompt, Speculation, Submit
from draftwerk.speculative.blend.switch import BlendBound, BlendMeasure, BlendSwitch
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.slo import NOTHING_PROMISED

PREFIX = "blend-audit-"
BEST = 20
"""Log-probabilities that are compared; all other tokens together are one more."""
LEAST = 1e-9
"""A probability that is left over by rounding."""
UNBOUNDED = BlendBound(float("inf"), 0.0)

logger = logging.getLogger("draftwerk")


@dataclass(slots=True)
class BlendAudit:
    """Picks requests at random, measures them, and switches."""

    share: float
    bound: BlendBound = UNBOUNDED
    rng: random.Random = field(default_factory=random.Random)
    counts: Counter[str] = field(default_factory=Counter[str])
    """"same" and "other" (the best first token), "failed"."""
    switch: BlendSwitch = field(init=False)
    _waiting: IdleQueue[Submit] = field(default_factory=IdleQueue[Submit])

    def __post_init__(self) -> None:
        self.switch = BlendSwitch(self.bound)

    def admit(self, submit: Submit) -> None:
        """Maybe keep a request to measure it; raises BlendOffError while segments are not reused.

        Those that are refused are measured as well: else it would never be switched on again. A
        request that was begun elsewhere goes on.
        """
        blend = submit.options.blend
        if blend is None or blend.lossless or submit.request_id.startswith(PREFIX):
            return
        if not submit.committed and self.rng.random() < self.share:
            self._waiting.put(submit)
        if not (self.switch.is_on or submit.committed):
            raise BlendOffError

    async def run(self, engine: Audited) -> None:
        """Measure one request after the other, each begun while the engine is idle."""

        async def work(submit: Submit) -> None:
            self.learn(await self._measured(engine, submit))

        await self._waiting.run(engine, work)

    def learn(self, measured: BlendMeasure | None) -> None:
        """Take in a measurement, None for one that failed."""
        if measured is None:
            self.counts["failed"] += 1
            return
        self.counts["same" if measured.same else "other"] += 1
        kl, top1 = self.switch.kl, self.switch.top1
        if self.switch.learn(measured):
            state = "on again" if self.switch.is_on else "off: requests with `blend` are refused"
            logger.warning("blend audit: KL %.4f, top-1 %.3f: switched %s", kl, top1, state)

    async def _measured(self, engine: Audited, submit: Submit) -> BlendMeasure | None:
        found: list[Mapping[int, float]] = []
        for options in (exactly(submit.options), once(submit.options)):
            name = f"{PREFIX}{len(found)}-{submit.request_id}"
            best = await _first(engine, submit.prompt, options, name)
            if best is None:
                return None
            found.append(best)
        return compared(*found)


def once(options: Options) -> Options:
    """Return options for the first token alone, greedily, with the best tokens there."""
    return Options(
        sampling=Sampling(temperature=0.0, logprobs=BEST),
        tokens_max=1,
        ignore_eos=True,
        speculation=Speculation(enabled=False),
        tenant=options.tenant,
        cache_salt=options.cache_salt,
        priority=LAST,
        blend=options.blend,
        promise=NOTHING_PROMISED,
    )


def exactly(options: Options) -> Options:
    """Return the same for the prompt read exactly."""
    return msgspec.structs.replace(once(options), blend=None)


async def _first(
    engine: Audited, prompt: Prompt, options: Options, request_id: str
) -> Mapping[int, float] | None:
    """Return the best first tokens with their log-probabilities, best first."""
    best: Mapping[int, float] | None = None
    async with engine.generate(prompt, options, request_id=request_id) as events:
        async for event in events:
            if isinstance(event, Failed):
                return None
            if isinstance(event, Delta) and event.logprobs:
                best = {each.token_id: each.logprob for each in event.logprobs[0].top}
    return best


def compared(exact: Mapping[int, float], blended: Mapping[int, float]) -> BlendMeasure:
    """Compare two first tokens.

    The KL is that of the tokens that both know, and of all others as one: never more than the
    whole one.
    """
    both = [token for token in exact if token in blended]
    pairs = [(exp(exact[token]), exp(blended[token])) for token in both]
    pairs.append((_rest(p for p, _ in pairs), _rest(q for _, q in pairs)))
    kl = sum(p * log(p / q) for p, q in pairs if p > 0.0)
    return BlendMeasure(max(0.0, kl), next(iter(exact)) == next(iter(blended)))


def _rest(chances: Iterable[float]) -> float:
    return max(LEAST, 1.0 - sum(chances))
