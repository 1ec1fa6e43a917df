"""Whether speculation ever costs: `python -m benchmarks.speed.never_slower --questions FILE`.

For each category, temperature and number of users, the same requests are served with drafts (auto)
and without, in turn; the figure is seconds without ÷ seconds with, of all such pairs, and how far
it may be from the truth. Where the error is above `--error`, twice as many are measured, and so on
up to `--repeats-max`. A machine's pace changes within seconds: short runs meet it both ways.
In brackets stands what drafts take outside the forward pass, in percent of the time without.
"adversarial" prompts are noise at a high temperature, which no source can guess and every source
keeps guessing. Each run has a tenant of its own, so that none finds another's prompts or outputs.
The cache's memory is used before anything is measured, up to 256 MiB: a run in which more of it
comes into use takes up to a tenth longer, as huge pages are made meanwhile.
`--short` takes about five minutes: three categories, and of each prompt its beginning.
`--model hybrid` is a hybrid shape with an MTP layer and random weights: what drafting costs where
it gains nothing. `--draft-head eagle` is an EAGLE-3 head with random weights, `dflash` a DFlash
drafter of 5 layers with blocks of 16.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import anyio
import torch
from msgspec.structs import replace

from benchmarks.speed.random_models import save_dflash, save_eagle, save_hybrid
from benchmarks.support.bench import ResultTable, in_turn, parser, run, show, user_columns
from benchmarks.support.engine import chat, engine, generate
from benchmarks.support.paired import Uncertain, location, ratio
from benchmarks.support.prompts import by_category
from draftwerk.actors.engine import Engine
from draftwerk.api.shared.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling

ADVERSARIAL = "adversarial"
HYBRID, EAGLE, DFLASH = "hybrid", "eagle", "dflash"
DFLASH_LAYERS, DFLASH_BLOCK = 5, 16
NOISE_TEMPERATURE = 1.5
WARM_WAVES = 8
"""Of 2,000 tokens each: as many as 256 MiB hold of the default model in bf16."""
REQUESTS_MIN = 8
"""Requests in a run, where there are fewer users."""
SHORT = {
    "count": 2,
    "tokens": 24,
    "characters": 400,
    "categories": ["mt-bench", "rag", ADVERSARIAL],
}
"""What `--short` takes."""


def noise(count: int, seed: int) -> list[str]:
    """Return prompts of random letters."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz   "
    return ["".join(rng.choices(letters, k=200)) for _ in range(count)]


async def serve(running: Engine, prompts: list[str], users: int, options: Options) -> float:
    """Return the seconds from the first of these requests to the last, `users` at once."""
    waiting = iter(enumerate(prompts))

    async def user() -> None:
        for number, prompt in waiting:
            await generate(running, chat(prompt), options, f"{options.tenant} {number}")

    begun = perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(users):
            tasks.start_soon(user)
    return perf_counter() - begun


class Timing(NamedTuple):
    """What a run took."""

    seconds: float
    forward_s: float
    """Of them, in forward passes."""


class Cell(NamedTuple):
    """A category at a temperature, with some users."""

    faster: Uncertain
    """Seconds without drafts ÷ seconds with."""
    besides: Uncertain
    """What drafts take outside the forward pass, as a share of the seconds without."""

    def __str__(self) -> str:
        return f"{self.faster} ({100 * self.besides.value:+.1f})"


@dataclass(frozen=True, slots=True)
class Crowd:
    """Some users with prompts of one category."""

    running: Engine
    given: argparse.Namespace
    category: str
    temperature: float
    prompts: list[str]
    users: int

    async def timing(self, drafts: bool, repeat: int) -> Timing:
        """Serve them all."""
        options = Options(
            sampling=Sampling(temperature=self.temperature, seed=self.given.seed),
            tokens_max=self.given.tokens,
            ignore_eos=True,
            speculation=Speculation(enabled=drafts),
            tenant=f"{self.category} {self.temperature} {self.users} {repeat} {drafts}",
        )
        before = self._forward_s()
        seconds = await serve(self.running, self.prompts, self.users, options)
        return Timing(seconds, self._forward_s() - before)

    async def cell(self) -> Cell:
        """Measure pairs until the error is small, or there are too many."""
        off, on, count = list[Timing](), list[Timing](), self.given.repeats
        while True:
            timed = await in_turn((False, True), count, self.timing, first=len(off))
            off, on = off + timed[False], on + timed[True]
            pairs = [*zip(off, on, strict=True)]
            faster = ratio((without.seconds, with_.seconds) for without, with_ in pairs)
            count = min(len(off), self.given.repeats_max - len(off))
            if faster.error <= self.given.error or count <= 0:
                break
        besides = ((_rest(with_) - _rest(without)) / without.seconds for without, with_ in pairs)
        return Cell(faster, location(besides))

    def _forward_s(self) -> float:
        return self.running.snapshot().models.device_busy_s["forward"]


def _rest(timing: Timing) -> float:
    return timing.seconds - timing.forward_s


def prompts_of(given: argparse.Namespace) -> dict[tuple[str, float], list[str]]:
    """Return as many prompts as the most users need, of each category at each temperature."""
    count = max(given.count, *given.users)
    categories = by_category(given.questions, count) if given.questions else {}
    found = {
        (category, temperature): [prompt[: given.characters] for prompt in prompts]
        for category, prompts in categories.items()
        for temperature in given.temperatures
        if not given.categories or category in given.categories
    }
    if not given.categories or ADVERSARIAL in given.categories:
        found[ADVERSARIAL, NOISE_TEMPERATURE] = noise(count, given.seed)
    return found


async def warm_up(running: Engine) -> None:
    """Generate a little, then read until every block of the cache was used, or many were."""
    options = Options(sampling=Sampling(temperature=0.0), tokens_max=32, tenant="warm")
    await serve(running, ["Say something."] * 4, 4, options)
    for wave in range(WARM_WAVES):
        load = running.snapshot().load
        if load.blocks_used + load.blocks_cached < load.blocks_total:
            options = replace(options, tokens_max=1, tenant=f"warm {wave}")
            await serve(running, noise(16, -1 - wave), 16, options)


async def cells(given: argparse.Namespace) -> dict[tuple[str, float, int], Cell]:
    """Return what was measured by category, temperature and users."""
    found: dict[tuple[str, float, int], Cell] = {}
    settings = Settings(
        model=given.model,
        dtype=given.dtype,
        kv_memory=given.kv_memory,
        draft_head=given.draft_head,
    )
    async with engine(settings) as running:
        await warm_up(running)
        for (category, temperature), prompts in prompts_of(given).items():
            for users in given.users:
                wave = prompts[: max(given.count, users)]
                crowd = Crowd(running, given, category, temperature, wave, users)
                found[category, temperature, users] = await crowd.cell()
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each category and temperature."""
    options = parser(
        __doc__,
        questions=None,
        users=[1, 4, 16, 48],
        count=REQUESTS_MIN,
        tokens=48,
        repeats=3,
        dtype="bf16",
        seed=1,
    )
    options.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    options.add_argument("--categories", nargs="+", help="all without it")
    options.add_argument("--error", type=float, default=0.01, help="of a cell that is sure enough")
    options.add_argument("--repeats-max", type=int, default=0, help="where it has more")
    options.add_argument("--characters", type=int, help="of each prompt at most")
    options.add_argument("--kv-memory", default="2GiB", help="48 long prompts at once take much")
    options.add_argument("--short", action="store_true", help="in five minutes")
    options.add_argument("--model", default="", help='a model, or "hybrid"')
    options.add_argument(
        "--draft-head",
        default="auto",
        help="as of `draftwerk serve`: mtp for hybrid; eagle or dflash",
    )
    given = options.parse_args(argv)
    if given.short:
        vars(given).update(SHORT)
    torch.manual_seed(given.seed)
    with TemporaryDirectory() as directory:
        if given.model == HYBRID:
            save_hybrid(Path(directory))
            given.model = directory
        if given.draft_head == EAGLE:
            save_eagle(Path(directory), given.model or None)
            given.draft_head = directory
        if given.draft_head == DFLASH:
            folder = Path(directory) / DFLASH
            folder.mkdir()
            save_dflash(folder, given.model or None, DFLASH_LAYERS, DFLASH_BLOCK)
            given.draft_head = str(folder)
        measured = run(cells, given)
    found = ResultTable(["category, T", *user_columns(given.users)])
    for category, temperature in dict.fromkeys(key[:2] for key in measured):
        row = (str(measured[category, temperature, users]) for users in given.users)
        found.add(f"{category}, {temperature:g}", *row)
    ratios = {key: cell.faster.value for key, cell in measured.items()}
    least = min(ratios, key=ratios.__getitem__)
    where = f"{least[0]}, T = {least[1]:g}, {least[2]} users"
    mean = geometric_mean(ratios.values())
    found.notes.append(f"mean {mean:.2f}, least {measured[least].faster}: {where}")
    return found


if __name__ == "__main__":
    show(table)
