"""What a draft model gains, and what one takes that guesses nothing.

    python -m benchmarks.speed.draft_model [--loudness 0.03] [--stranger]

A target of 1.4 B weights is served without drafts, with the draft sources that need no model, and
with all; the texts must be equal. Its student is its first layer, and `--loudness` of the others
decides how often it is right. `--stranger` serves a draft model of that size that never is.
The formula is the controller's: of each length of the chains, the tokens that come of a round by
the time that it takes, relative to a round without drafts.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import anyio
import torch

from benchmarks.speed.never_slower import noise
from benchmarks.speed.random_models import save_family
from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show
from benchmarks.support.engine import chat, generate
from benchmarks.support.paired import Uncertain, ratio
from draftwerk.actors.engine import Engine
from draftwerk.api.shared.config import Settings
from draftwerk.assembly.build import build_engine
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.build import build
from draftwerk.model.process.measuring import StepSize
from draftwerk.model.process.step_trials import verification
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.drafting.controller import MODEL_MAX
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.registry import WITHOUT_MODEL

WAYS = {
    "off": Speculation(enabled=False),
    "sources": Speculation(methods=WITHOUT_MODEL),
    "all": Speculation(),
}
STEPS = 15
WARM = 2
"""Repeats that are not counted: memory comes into use, and rates of guesses are learnt."""
PROMPT = 40
"""Characters of a prompt."""


class GainCell(NamedTuple):
    """Some users at a temperature."""

    rate: float
    """Tokens a second without drafts."""
    sources: Uncertain
    """Times as fast with the sources as without drafts."""
    model: Uncertain
    """Times as fast with the draft model beside them as with the sources alone."""
    right: float
    """Share of drafted tokens that are right where those before them are."""


@dataclass(frozen=True, slots=True)
class DraftedCrowd:
    """Some users who ask the same in each way."""

    running: Engine
    given: argparse.Namespace
    users: int
    temperature: float
    texts: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """By repeat and user."""

    async def seconds(self, way: str, repeat: int) -> float:
        """Answer one prompt of each user, with the same text in each way."""
        options = Options(
            sampling=Sampling(temperature=self.temperature, seed=self.given.seed + WARM + repeat),
            tokens_max=self.given.tokens,
            ignore_eos=True,
            speculation=WAYS[way],
            tenant=f"{self.users} {self.temperature} {way} {repeat}",
        )

        async def ask(user: int, prompt: str) -> None:
            name = f"{options.tenant} {user}"
            found = await generate(self.running, chat(prompt[:PROMPT]), options, name)
            assert self.texts.setdefault((repeat, user), found.text) == found.text

        begun = perf_counter()
        async with anyio.create_task_group() as asking:
            for user, prompt in enumerate(noise(self.users, repeat)):
                asking.start_soon(ask, user, prompt)
        return perf_counter() - begun

    async def cell(self) -> GainCell:
        """Measure every way in turn."""
        await in_turn(tuple(WAYS), WARM, self.seconds, first=-WARM)
        before = self._counted()
        found = await in_turn(tuple(WAYS), self.given.repeats, self.seconds)
        counted = [n - m for n, m in zip(self._counted(), before, strict=True)]
        return GainCell(
            self.users * self.given.tokens / middle(found["off"]),
            ratio(zip(found["off"], found["sources"], strict=True)),
            ratio(zip(found["sources"], found["all"], strict=True)),
            guess_rate(*counted),
        )

    def _counted(self) -> tuple[int, int, int]:
        """Return how many rows were drafted for, drafted tokens, and accepted ones."""
        counts = self.running.snapshot().counts
        return sum(counts.drafts_by_source.values()), counts.draft_tokens, counts.accepted_tokens


def guess_rate(chains: int, drafted: int, accepted: int) -> float:
    """Return the share right at each place that chains of their mean length were accepted by."""
    whole, rest = divmod(drafted / max(1, chains), 1.0)
    low, high = 0.0, 1.0
    for _ in range(20):
        rate = (low + high) / 2
        expected = sum(rate**depth for depth in range(1, int(whole) + 1))
        if (expected + rest * rate ** (whole + 1)) * chains < accepted:
            low = rate
        else:
            high = rate
    return low


def allowed(right: float, users: int, cost: StepCost, token_ms: float) -> tuple[float, int]:
    """Return how many times as fast the best length of chains is as none, and that length.

    Each token is right in `right` of all cases if that before it is.
    """
    table = cost.table(users * (1 + MODEL_MAX))
    rates = [
        sum(right**depth for depth in range(length + 1))
        / (table[users * (1 + length)] + length * token_ms)
        for length in range(MODEL_MAX + 1)
    ]
    best = max(range(MODEL_MAX + 1), key=rates.__getitem__)
    return rates[best] / rates[0], best


def step_ms(folder: Path, dtype: str) -> float:
    """Return what a step of one token takes."""
    options = ModelOptions(source=str(folder), dtype=dtype, block_count=16, measures=False)
    runner = target_runner(build(options).parts)
    proposal = verification(StepSize(1, 1), options.block_size, runner.vocab_size)
    return middle(runner.step(proposal).report.device_ms for _ in range(STEPS))


async def cells(
    given: argparse.Namespace, target: Path, draft: Path, token_ms: float
) -> list[tuple[object, ...]]:
    """Return the rows of the table."""
    settings = Settings(
        model=str(target), draft=str(draft), dtype=given.dtype, kv_memory="512MiB", spare="off"
    )
    found: list[tuple[object, ...]] = []
    async with build_engine(settings, print) as running:
        cost = StepCost(running.ready.step_costs, running.ready.roofline)
        for users in given.users:
            for temperature in given.temperatures:
                cell = await DraftedCrowd(running.engine, given, users, temperature).cell()
                gain, length = allowed(cell.right, users, cost, token_ms)
                name = f"{users}, T = {temperature:g}"
                ways = str(cell.sources), str(cell.model)
                found.append((name, cell.rate, *ways, cell.right, gain, length))
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each number of users and temperature."""
    options = parser(__doc__, users=[1, 4], tokens=96, repeats=5, dtype="int8", seed=1)
    options.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    options.add_argument("--layers", type=int, default=20, help="of the target")
    options.add_argument("--loudness", type=float, default=0.03, help="of the upper layers")
    options.add_argument("--stranger", action="store_true", help="in place of the student")
    given = options.parse_args(argv)
    torch.manual_seed(given.seed)
    with TemporaryDirectory() as directory:
        target, student, stranger = save_family(Path(directory), given.layers, given.loudness)
        draft = stranger if given.stranger else student
        token_ms = step_ms(draft, given.dtype)
        rows = run(cells, given, target, draft, token_ms)
    found = ResultTable(
        ["users", "tok/s", "sources ÷ none", "all ÷ sources", "right", "formula", "length"]
    )
    for row in rows:
        found.add(*row)
    found.notes.append(f"a token of the draft model takes {token_ms:.1f} ms")
    return found


if __name__ == "__main__":
    show(table)
