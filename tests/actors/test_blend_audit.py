"""The audit of reused segments: measures in idle moments, refuses by name, and serves again."""

import random
from math import log

import msgspec
import pytest

from draftwerk.actors.blend_audit import BlendAudit, compared
from draftwerk.actors.devices.device import ThreadDevice, ThreadWorker
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.errors import BlendOffError
from draftwerk.actors.messages import Options, Submit
from draftwerk.speculative.blend.rules import Blend
from draftwerk.speculative.blend.switch import SAMPLES_MIN, BlendBound
from draftwerk.speculative.protocol.rounds import ChosenLogprob, Proposal, Verdict
from draftwerk.speculative.sampling.params import Sampling
from tests.actors import loops
from tests.support.simulation import Fates, Setting, parts
from tests.support.toy import ToyTarget
from tests.support.waiting import until

PROMPT = (3, 1, 2, 3, 4, 5, 6, 7, 8, 9)
BLEND = Blend(((1, 9),), "none", 0.0)


class Reporting(ToyTarget):
    """Tells the best tokens of each choice; over reused segments other ones, while it errs."""

    errs = True

    def step(self, proposal: Proposal) -> Verdict:
        blended = {row.sequence_id for row in proposal.round.rows if row.blend is not None}
        verdict = super().step(proposal)
        rows = zip(proposal.round.rows, verdict.decisions, strict=True)
        decisions = [
            decision
            if not decision.tokens
            else msgspec.structs.replace(decision, logprobs=(self._best(row.sequence_id, blended),))
            for row, decision in rows
        ]
        return msgspec.structs.replace(verdict, decisions=tuple(decisions))

    def _best(self, sequence_id: int, blended: set[int]) -> ChosenLogprob:
        best = (7, 3) if self.errs and sequence_id in blended else (3, 7)
        return ChosenLogprob(log(0.75), ((best[0], log(0.75)), (best[1], log(0.25))))


async def ask(engine: Engine, number: int, lossless: bool = False) -> None:
    sampling = Sampling(temperature=0.0, seed=number, logprobs=2)
    blend = msgspec.structs.replace(BLEND, lossless=lossless)
    # A salt of its own: else the whole blend is found, and no row says that it is one.
    options = Options(sampling=sampling, tokens_max=1, blend=blend, cache_salt=str(number))
    async with engine.generate(PROMPT, options, request_id=str(number)) as events:
        async for _ in events:
            pass


async def audited(engine: Engine, count: int) -> None:
    done = engine.snapshot
    await until(lambda: sum(done().blend_audits.values()) >= count, loops.DEADLINE_S)


async def test_past_the_bound_it_is_refused_and_well_within_it_served_again() -> None:
    rng = random.Random(1)
    setting = Setting(1, block_count=200)
    made = parts(setting, Fates.of(setting, rng), rng)
    target = Reporting(200, 4)
    audit = BlendAudit(1.0, BlendBound(0.1, 0.9), rng)
    object.__setattr__(made, "worker", ThreadWorker())
    object.__setattr__(made, "blend_audit", audit)
    object.__setattr__(made, "target", lambda: ThreadDevice(target.step))
    target.blends = AnyBlend()
    async with running(made) as engine:
        for number in range(SAMPLES_MIN):
            await ask(engine, number)
            await audited(engine, number + 1)
        assert engine.snapshot().blends_off == 1
        assert engine.snapshot().blend_audits == {"other": SAMPLES_MIN}
        await ask(engine, 900, lossless=True)  # nothing of it is approximate
        target.errs = False
        for number in range(SAMPLES_MIN):
            with pytest.raises(BlendOffError):
                await ask(engine, 100 + number)
            await audited(engine, SAMPLES_MIN + number + 1)
        assert engine.snapshot().blends_off == 0
        await ask(engine, 901)
        await engine.idle()


class AnyBlend(dict[int, Blend]):
    """Of every seed there is a prompt with segments, exact ones among them."""

    def get(self, key: int, default: object = None) -> Blend:  # type: ignore[override]
        return msgspec.structs.replace(BLEND, lossless=True)


def test_only_what_is_approximate_and_begins_here_is_refused() -> None:
    audit = BlendAudit(0.0)
    audit.switch.is_on = False
    options = Options(sampling=Sampling(), blend=BLEND)
    exact = msgspec.structs.replace(options, blend=None)
    lossless = msgspec.structs.replace(options, blend=msgspec.structs.replace(BLEND, lossless=True))
    with pytest.raises(BlendOffError):
        audit.admit(Submit(request_id="a", prompt=PROMPT, options=options))
    audit.admit(Submit(request_id="a", prompt=PROMPT, options=exact))
    audit.admit(Submit(request_id="a", prompt=PROMPT, options=lossless))
    audit.admit(Submit(request_id="a", prompt=PROMPT, options=options, committed=((1,),)))


def test_equal_distributions_do_not_diverge() -> None:
    some = {3: log(0.5), 4: log(0.25)}
    assert compared(some, some).kl == 0.0 and compared(some, some).same


def test_tokens_that_one_alone_knows_count_as_all_others() -> None:
    exact, blended = {3: log(0.5), 4: log(0.25)}, {4: log(0.5), 3: log(0.25)}
    found = compared(exact, blended)
    assert not found.same
    assert found.kl == pytest.approx(0.5 * log(2) + 0.25 * log(0.5))
    assert compared({3: log(0.5)}, {9: log(0.5)}).kl == 0.0, "a bound from below"
