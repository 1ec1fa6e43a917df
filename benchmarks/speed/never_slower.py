"""Whether speculation ever costs: `python -m benchmarks.speed.never_slower --questions FILE`.

For each category, temperature and number of users, the same requests are served with drafts (auto)
and without, in turn, `--turns` times a repeat; the figure is the median over the repeats of seconds
without ÷ seconds with. A machine's pace changes within seconds: short runs meet it both ways.
"adversarial" prompts are noise at a high temperature, which no source can guess and every source
keeps guessing. Each run has a tenant of its own, so that none finds another's prompts or outputs.
The cache's memory is used before anything is measured, up to 256 MiB: a run in which more of it
comes into use takes up to a tenth longer, as huge pages are made meanwhile.
`--short` takes about five minutes: three categories, and of each prompt its beginning.
`--model hybrid` is a hybrid shape with an MTP layer and random weights: what drafting costs where
it gains nothing. `--draft-head eagle` is an EAGLE-3 head with random weights.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio
from msgspec.structs import replace

from benchmarks.speed.eagle_shape import save_eagle
from benchmarks.speed.hybrid_shape import save_hybrid
from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show, user_columns
from benchmarks.support.engine import chat, engine
from benchmarks.support.prompts import by_category
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Failed
from draftwerk.api.core.config import Settings
from draftwerk.speculative.requests.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling

ADVERSARIAL = "adversarial"
HYBRID, EAGLE = "hybrid", "eagle"
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
            name = f"{options.tenant} {number}"
            async with running.generate(chat(prompt), options, request_id=name) as events:
                async for event in events:
                    assert not isinstance(event, Failed), event

    begun = perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(users):
            tasks.start_soon(user)
    return perf_counter() - begun


@dataclass(frozen=True, slots=True)
class Crowd:
    """Some users with prompts of one category."""

    running: Engine
    given: argparse.Namespace
    category: str
    temperature: float
    prompts: list[str]
    users: int

    async def seconds(self, drafts: bool, repeat: int) -> float:
        """Return how long it takes to serve them all."""
        options = Options(
            sampling=Sampling(temperature=self.temperature, seed=self.given.seed),
            tokens_max=self.given.tokens,
            ignore_eos=True,
            speculation=Speculation(enabled=drafts),
            tenant=f"{self.category} {self.temperature} {self.users} {repeat} {drafts}",
        )
        return await serve(self.running, self.prompts, self.users, options)


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


async def cells(given: argparse.Namespace) -> dict[tuple[str, float, int], float]:
    """Return the ratio by category, temperature and users: above one, drafts gain."""
    found: dict[tuple[str, float, int], float] = {}
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
                runs = given.repeats * given.turns
                timed = await in_turn((False, True), runs, crowd.seconds)
                found[category, temperature, users] = middle(
                    sum(timed[False][first : first + given.turns])
                    / sum(timed[True][first : first + given.turns])
                    for first in range(0, runs, given.turns)
                )
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
    options.add_argument("--turns", type=int, default=1, help="runs of each way in a repeat")
    options.add_argument("--characters", type=int, help="of each prompt at most")
    options.add_argument("--kv-memory", default="2GiB", help="48 long prompts at once take much")
    options.add_argument("--short", action="store_true", help="in five minutes")
    options.add_argument("--model", default="", help='a model, or "hybrid"')
    options.add_argument(
        "--draft-head", default="auto", help='as of `draftwerk serve`: mtp for hybrid; or "eagle"'
    )
    given = options.parse_args(argv)
    if given.short:
        vars(given).update(SHORT)
    with TemporaryDirectory() as directory:
        if given.model == HYBRID:
            save_hybrid(Path(directory))
            given.model = directory
        if given.draft_head == EAGLE:
            save_eagle(Path(directory), given.model or None)
            given.draft_head = directory
        ratios = run(cells, given)
    found = ResultTable(["category, T", *user_columns(given.users)])
    for category, temperature in dict.fromkeys(key[:2] for key in ratios):
        row = (ratios[category, temperature, users] for users in given.users)
        found.add(f"{category}, {temperature:g}", *row)
    least = min(ratios, key=ratios.__getitem__)
    where = f"{least[0]}, T = {least[1]:g}, {least[2]} users"
    mean = geometric_mean(ratios.values())
    found.notes.append(f"mean {mean:.2f}, least {ratios[least]:.2f}: {where}")
    return found


if __name__ == "__main__":
    show(table)
