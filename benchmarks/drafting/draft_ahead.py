"""What drafting beside the target could gain: `python -m benchmarks.drafting.draft_ahead STUDENT`.

A draft model that guesses on while the target computes is worth it if the two at once take less
than one after the other. Both processes of a server with `--draft STUDENT` are given the same
rounds by hand: the target verifies so many drafts in each row, the draft model makes them anew.

    target, draft   ms of a round, each alone
    at once         ms until both have done theirs
    hidden          the share of the shorter one that the other one's time hides: 1 is free
    gain            round with the drafts first over a round with both at once, all guesses right
"""

import argparse
from collections.abc import Callable, Coroutine
from statistics import median
from time import perf_counter
from typing import Any

import anyio

from draftwerk.api.core.config import Settings
from draftwerk.assembly.build import LoadedModels, load_models
from draftwerk.model.process.measuring import StepSize
from draftwerk.model.process.role import verification

RoundWork = Callable[[], Coroutine[Any, Any, object]]


async def timed(*works: RoundWork) -> float:
    """Return the ms until all of them, begun together, are done."""
    begun = perf_counter()
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)
    return 1e3 * (perf_counter() - begun)


async def measure(models: LoadedModels, rows: int, drafts: int, given: argparse.Namespace) -> str:
    """Measure rounds of so many rows in turns, and return the medians as a line."""
    assert models.draft is not None
    target, draft = models.target.fresh(), models.draft.fresh()
    size = StepSize(rows * (1 + drafts), given.context, rows)
    proposal = verification(size, models.plan.block_size)

    async def verify() -> None:
        await target.run(proposal)

    async def guess() -> None:
        found = await draft.run(proposal.round)
        assert all(len(each.tokens) == drafts for each in found)

    for work in (verify, guess):
        await work()  # the first time the draft model reads the context
    alone, ahead, both = list[float](), list[float](), list[float]()
    for _ in range(given.repeats):
        alone.append(await timed(verify))
        ahead.append(await timed(guess))
        both.append(await timed(verify, guess))
    target_ms, draft_ms, both_ms = median(alone), median(ahead), median(both)
    hidden = (target_ms + draft_ms - both_ms) / min(target_ms, draft_ms)
    gain = (target_ms + draft_ms) / both_ms
    return (
        f"{rows:5d} {drafts:6d} {target_ms:8.2f} {draft_ms:8.2f} {both_ms:8.2f} "
        f"{hidden:7.2f} {gain:6.2f}"
    )


async def main(arguments: argparse.Namespace) -> None:
    settings = Settings(
        model=arguments.model,
        dtype=arguments.dtype,
        draft=arguments.student,
        spare="off",
        kv_memory="512MiB",
    )
    async with load_models(settings, print) as models:
        print(" rows drafts   target    draft  at once  hidden   gain")
        for rows in arguments.rows:
            for drafts in arguments.drafts:
                print(await measure(models, rows, drafts, arguments), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("student", help="the draft model")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--model", default="", help="the target")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
