"""Price of a drafter that is never right, and the gain by one that is right in 85 of 100 tokens.

    python -m benchmarks.speed.drafter_price

The target is a Llama of 1.2 billion random weights (`--layers`), in which one token follows any
other with the chance `--right`, at T = 1; what its layers add is computed and hardly counts. Two
DFlash drafters of five layers and blocks of 8 (`--block`), with a tenth of its weights, guess that
token always, or another. The same requests are served with the drafter alone, and without drafts,
in turn.

Columns: users; seconds without ÷ with for either drafter; then, of the right one, tokens that a
round brings a text, milliseconds of a round without drafts and with, and of these the drafter's;
then what rounds of one chain could bring, (1 - p^n) / (1 - p) tokens of n verified ones.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from benchmarks.speed.never_slower import noise, serve
from benchmarks.speed.random_models import save_planted
from benchmarks.support.bench import ResultTable, in_turn, parser, run, show
from benchmarks.support.engine import engine
from benchmarks.support.paired import Uncertain, ratio
from draftwerk.actors.engine import Engine
from draftwerk.api.shared.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling

DRAFTERS = ("wrong", "right")
WARM_RUNS = 2
"""In which the server learns what drafts bring."""
WARM_SEED = 1000
CHARACTERS = 60
"""Of a prompt."""


class Rounds(NamedTuple):
    """A run's requests."""

    seconds: float
    rounds: int
    """Rounds of the model."""
    forward_s: float
    head_s: float


@dataclass(frozen=True, slots=True)
class DrafterUsers:
    """Some users of one server."""

    running: Engine
    given: argparse.Namespace
    users: int

    async def rounds(self, drafts: bool, repeat: int) -> Rounds:
        """Serve the requests of a run."""
        count = max(self.users, self.given.count)
        options = Options(
            sampling=Sampling(temperature=1.0, seed=self.given.seed + repeat),
            tokens_max=self.given.tokens,
            ignore_eos=True,
            speculation=Speculation(enabled=drafts, methods=("head",)),
            tenant=f"{self.users} {repeat} {drafts}",
        )
        before = self.running.snapshot()
        prompts = [text[:CHARACTERS] for text in noise(count, self.given.seed)]
        seconds = await serve(self.running, prompts, self.users, options)
        after = self.running.snapshot()
        forward_s, head_s = (
            after.models.device_busy_s[stage] - before.models.device_busy_s[stage]
            for stage in ("forward", "head")
        )
        return Rounds(seconds, after.counts.rounds - before.counts.rounds, forward_s, head_s)

    async def pairs(self) -> list[tuple[Rounds, Rounds]]:
        """Return runs without drafts, each with the one that has them."""
        timed = await in_turn((False, True), self.given.repeats, self.rounds)
        found = [*zip(timed[False], timed[True], strict=True)]
        print(f"{self.users} users: {faster(found)}", flush=True)
        return found


async def measured(
    target: Path, drafter: Path, given: argparse.Namespace
) -> list[list[tuple[Rounds, Rounds]]]:
    """Return the runs of a drafter, by number of users."""
    settings = Settings(
        model=str(target), dtype=given.dtype, kv_memory="1GiB", draft_head=str(drafter)
    )
    async with engine(settings) as running:
        for repeat in range(WARM_RUNS):
            await DrafterUsers(running, given, 1).rounds(True, WARM_SEED + repeat)
        return [await DrafterUsers(running, given, users).pairs() for users in given.users]


def faster(pairs: Sequence[tuple[Rounds, Rounds]]) -> Uncertain:
    return ratio((off.seconds, on.seconds) for off, on in pairs)


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each number of users."""
    options = parser(__doc__, users=[1, 4, 16], count=4, tokens=96, repeats=5, dtype="int8", seed=1)
    options.add_argument("--layers", type=int, default=16)
    options.add_argument("--right", type=float, default=0.85)
    options.add_argument("--block", type=int, default=8, help="tokens, the last known one first")
    given = options.parse_args(argv)
    torch.manual_seed(given.seed)
    found: dict[str, list[list[tuple[Rounds, Rounds]]]] = {}
    with TemporaryDirectory() as directory:
        folders = save_planted(Path(directory), given.layers, given.right, given.block)
        for name in DRAFTERS:
            found[name] = run(
                lambda own, name=name: measured(folders["target"], folders[name], own), given
            )
    made = ResultTable(
        ["users", *DRAFTERS, "tokens a round", "ms off", "ms on", "of it drafter", "a chain"]
    )
    most = (1.0 - given.right**given.block) / (1.0 - given.right)
    for index, users in enumerate(given.users):
        wrong, right = (found[name][index] for name in DRAFTERS)
        off, on = ([pair[side] for pair in right] for side in (0, 1))
        rounds_off, rounds_on = (sum(each.rounds for each in runs) for runs in (off, on))
        made.add(
            str(users),
            str(faster(wrong)),
            str(faster(right)),
            rounds_off / rounds_on,
            1e3 * sum(each.forward_s for each in off) / rounds_off,
            1e3 * sum(each.forward_s + each.head_s for each in on) / rounds_on,
            1e3 * sum(each.head_s for each in on) / rounds_on,
            most,
        )
    return made


if __name__ == "__main__":
    show(table)
