"""The right distribution: texts of the whole engine against the model's own conditionals.

`python -m validation.distribution --output FILE` decodes one prompt under thousands of seeds on
the default model, with drafts from every source, and compares single tokens and consecutive pairs
with the distribution that one forward pass over the prefixes gives: chi-squared, corrected for the
number of tests. Then the same with two planted faults, which must be noticed: a verifier that takes
a wrong draft now and then, and noise that serves two positions, which only pairs can show.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio
import msgspec
from torch import Tensor

from draftwerk.actors.engine import running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.reference.sampler import SamplingRequest, scores_of, truncated
from draftwerk.model.step.options.step_options import step_options, target_runner
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.request import Speculation
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.chi_square import least, p_value
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from tests.support.toy import ToyText
from validation.forced_drafts import SOURCES, Everything
from validation.matrix import DefaultWords, decode
from validation.matrix_engines import BLOCK_SIZE

PROMPT = "Random digits: 38190472561820397415"
"""What follows is digits, a token each: pairs come often, and positions compete for noise."""
AT_ONCE = 32
LENGTH = 4
FOLLOWED = 3
"""Of the prefixes of a length, the commonest whose continuations are looked at."""
ENOUGH = 100
"""Continuations of a prefix that make a test."""
LEVEL = 0.001
"""Of the whole family of tests, whatever their number."""
FAULT_RATE = 0.5

Prefix = tuple[int, ...]


@dataclass(slots=True)
class Sampled:
    """Texts of one engine, and what its drafts came to."""

    texts: list[Prefix]
    accepted: int
    rejected: int


@dataclass
class LawTest:
    """A model, a prompt and a distribution."""

    runner: TargetRunner
    text: ToyText
    prompt: Prefix
    sampling: Sampling
    block_count: int
    known: dict[Prefix, dict[int, float]] = field(default_factory=dict[Prefix, dict[int, float]])
    """Distributions of the next token that were computed already."""

    async def sample(self, count: int, target: Callable[[], TargetRunner]) -> Sampled:
        """Decode the prompt under `count` seeds."""
        texts: list[Prefix] = [()] * count
        seeds = iter(range(count))
        parts = EngineParts(
            options=all_options(),
            text=self.text,
            target=lambda: ThreadDevice(target().step),
            block_count=self.block_count,
            block_size=BLOCK_SIZE,
            context_max=256,
            stop_token_ids=(),
            limits=RoundLimits(rows_max=AT_ONCE, tokens_max=256, draft_max=7),
            proposer=partial(Proposer, SOURCES, policy=Everything),
        )
        async with running(parts) as engine:

            async def work() -> None:
                for seed in seeds:
                    sampling = msgspec.structs.replace(self.sampling, seed=seed)
                    drafted = Speculation()
                    texts[seed] = tuple(
                        await decode(engine, self.prompt, sampling, drafted, str(seed), LENGTH)
                    )

            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(work)
            counts = engine.snapshot().counts
        accepted = counts.accepted_tokens
        return Sampled(texts, accepted, counts.draft_tokens - accepted)

    def distributions(self, prefixes: Iterable[Prefix]) -> None:
        """Find the distributions after some prefixes, in one forward pass of rows without
        drafts."""
        wanted = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self.known]
        each = (len(self.prompt) + LENGTH) // BLOCK_SIZE + 1
        at_once = self.block_count // each
        for first in range(0, len(wanted), at_once):
            builder = BatchBuilder(BLOCK_SIZE)
            asked = wanted[first : first + at_once]
            for place, prefix in enumerate(asked):
                blocks = tuple(range(place * each, place * each + each))
                builder.add([*self.prompt, *prefix], 0, blocks, NO_DRAFT, True)
            logits = self.runner.parts.run(builder)
            for row, prefix in enumerate(asked):
                self.known[prefix] = self._distribution(logits, row, prefix)

    def _distribution(self, logits: Tensor, row: int, prefix: Prefix) -> dict[int, float]:
        known = CachedSequence([*self.prompt, *prefix], len(self.prompt), self.sampling)
        scores = scores_of(logits, known.sampling_request(row, [])) / self.sampling.temperature
        tokens, values = truncated(scores, self.sampling)
        return dict(zip(tokens.tolist(), values.softmax(-1).tolist(), strict=True))

    def p_values(self, texts: list[Prefix]) -> dict[str, float]:
        """Test single tokens and pairs: from the first token on, and after common prefixes."""
        self.distributions([()])
        found = {"token 1": p_value(Counter(text[0] for text in texts), self.known[()])}
        for length in range(LENGTH - 1):
            followed = Counter(text[:length] for text in texts if len(text) >= length + 2)
            for number, (prefix, count) in enumerate(followed.most_common(FOLLOWED), start=1):
                if count >= ENOUGH:
                    after = [text[length:] for text in texts if text[:length] == prefix]
                    place = f"{length + 1} after prefix {number}"
                    if length:
                        self.distributions([prefix])
                        singles = Counter(text[0] for text in after)
                        found[f"token {place}"] = p_value(singles, self.known[prefix])
                    pairs = Counter(text[:2] for text in after)
                    found[f"pair from {place}"] = p_value(pairs, self._pairs(prefix, count))
        return found

    def _pairs(self, prefix: Prefix, count: int) -> dict[Prefix, float]:
        """Return the distribution of the next two tokens, as far as one is expected in `count`
        pairs."""
        self.distributions([prefix])
        firsts = {token: p for token, p in self.known[prefix].items() if p * count >= 1.0}
        self.distributions((*prefix, token) for token in firsts)
        return {
            (first, second): p * q
            for first, p in firsts.items()
            for second, q in self.known[(*prefix, first)].items()
            if p * q * count >= 1.0
        }


# --- faults ---------------------------------------------------------------------------------------


class LenientWalk(RowWalk):
    """Takes a drafted token in place of the target's now and then.

    The lowest one: keyed drafts follow the distribution nearly as well as the target does.
    """

    rng = random.Random(1)

    def accept(self, answer: int) -> bool:
        drafted = [child for parent, child in self.children if parent == self.node]
        if drafted and self.rng.random() < FAULT_RATE:
            answer = min(drafted)
        return super().accept(answer)


class LenientRunner(TargetRunner):
    row_walk = LenientWalk


def doubled(runner: TargetRunner, start: int) -> TargetRunner:
    """Return a runner whose noise serves two positions each, from `start` on."""
    choose = runner.backend.choose

    def choose_doubled(logits: Tensor, requests: list[SamplingRequest]) -> list[int]:
        return choose(
            logits,
            [
                SamplingRequest(
                    request.logits_row,
                    (request.position - start) // 2,
                    request.sampling,
                    request.logit_edits,
                    request.allowed,
                )
                for request in requests
            ],
        )

    backend = replace(runner.backend, choose=choose_doubled)
    return target_runner(replace(runner.parts, backend=backend), runner.successor_count)


# --- the run --------------------------------------------------------------------------------------


HONEST, LENIENT, DOUBLED = (
    "honest",
    "a draft taken now and then",
    "noise that serves two positions",
)


def run(test: LawTest, count: int, faults: tuple[str, ...]) -> dict[str, object]:
    """Sample honestly and with each fault; assert what must come out, and return it."""
    parts, successors = test.runner.parts, test.runner.successor_count
    options = step_options(parts, successors, perf_counter)
    targets: dict[str, Callable[[], TargetRunner]] = {
        HONEST: lambda: target_runner(parts, successors),
        LENIENT: lambda: LenientRunner(parts, successors, options=options),
        DOUBLED: lambda: doubled(test.runner, len(test.prompt)),
    }
    report: dict[str, object] = {}
    for name in (HONEST, *faults):
        sampled = anyio.run(test.sample, count, targets[name])
        found = test.p_values(sampled.texts)
        worst = least(found.values())
        report[name] = {
            "accepted": sampled.accepted,
            "rejected": sampled.rejected,
            "tests": len(found),
            "least_p_corrected": worst,
            "p_values": found,
        }
        print(f"{name}: {len(found)} tests, least p-value, corrected, {worst:.3g}", flush=True)
        assert sampled.accepted > 0 < sampled.rejected, name
        assert (worst > LEVEL) == (name == HONEST), (name, found)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4000)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    blocks = 1024
    options = ModelOptions(
        dtype=arguments.dtype,
        threads=arguments.threads,
        block_count=blocks,
        block_size=BLOCK_SIZE,
        successor_count=16,
    )
    text = TextTokenizer(locate(None).directory)
    prompt = text.encode_continuation(PROMPT)
    test = LawTest(
        build_runner(options), DefaultWords(), tuple(prompt), Sampling(temperature=1.0), blocks
    )
    report = {
        "prompt": PROMPT,
        "dtype": arguments.dtype,
        "seeds": arguments.seeds,
        "level": LEVEL,
        **run(test, arguments.seeds, (LENIENT, DOUBLED)),
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
