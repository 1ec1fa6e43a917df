"""A divided model against one process: the same bits, the same texts, also when ranks are killed.

    python -m validation.ranks logits       # tiny models of every family, and the default model
    python -m validation.ranks texts        # the default model behind an engine, in every grid
    python -m validation.ranks kills        # the same texts while ranks are killed

Byte equality is asserted.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from draftwerk import AsyncLLM, SamplingParams
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.shard import Grid
from draftwerk.python_api.outputs import RequestOutput
from tests.support.thread_ranks import differing
from tests.support.tiny_models import FAMILIES, save_tiny

GRIDS = (Grid(2, 1), Grid(3, 1), Grid(1, 2), Grid(1, 3), Grid(2, 2))
DTYPES = ("fp32", "bf16", "int8", "int4")
STORY = "Write a story about a lighthouse keeper who finds a letter in a bottle."
ASKED: tuple[tuple[str, SamplingParams], ...] = (
    ("greedy", SamplingParams(temperature=0.0, max_tokens=48, logprobs=2)),
    ("seeded", SamplingParams(temperature=1.0, seed=3, max_tokens=48)),
    ("undrafted", SamplingParams(temperature=1.0, seed=3, max_tokens=48, speculation="off")),
    ("two texts", SamplingParams(temperature=0.8, seed=5, n=2, max_tokens=32)),
    ("beams", SamplingParams(beam_width=3, n=2, max_tokens=16)),
    ("grammar", SamplingParams(temperature=0.7, seed=7, max_tokens=32, regex="[A-Za-z ,]+")),
    ("penalised", SamplingParams(temperature=0.0, frequency_penalty=0.6, max_tokens=32)),
)
KILLS = 3
KILL_PAUSE_S = 1.0


def logits(dtypes: Sequence[str], grids: Sequence[Grid]) -> None:
    """Compare every family's tiny model and the default one, logits and pages, bit for bit."""
    with TemporaryDirectory() as folder:
        for family in FAMILIES:
            directory = Path(folder) / family
            save_tiny(directory, family, num_hidden_layers=3)
            compare(family, str(directory), dtypes, grids)
    compare("the default model", None, dtypes, grids)


def compare(name: str, directory: str | None, dtypes: Sequence[str], grids: Sequence[Grid]) -> None:
    """Raise SystemExit where a grid gives other bits than one process."""
    model = load(directory, None)
    for dtype in dtypes:
        if wrong := differing(model, directory, dtype, grids):
            raise SystemExit(f"{name}: other bits in {wrong}")
    print(f"{name}: {len(dtypes)} formats x {len(grids)} grids, all bits equal", flush=True)


async def answered(llm: AsyncLLM, wanted: Sequence[str]) -> list[tuple[object, ...]]:
    """Return all texts, and the log-probabilities that were asked for, computed together."""
    params = [params for name, params in ASKED if name in wanted]
    return [said(one) for one in await llm.batch([STORY] * len(params), params)]


def said(output: RequestOutput) -> tuple[object, ...]:
    return tuple((one.token_ids, one.text, one.logprobs) for one in output.choices)


def check(name: str, found: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> None:
    """Raise SystemExit where a text is another."""
    for one, other in zip(found, expected, strict=True):
        if one != other:
            raise SystemExit(f"{name}: another text:\n{one}\n{other}")
    print(f"{name}: {len(found)} requests equal", flush=True)


async def texts(asked: argparse.Namespace, dtype: str, grids: Sequence[Grid], kills: int) -> None:
    """Compare the texts of every grid with those of one process."""
    expected: list[tuple[object, ...]] = []
    for grid in (Grid(), *grids):
        settings = AsyncLLM(
            asked.model,
            kv_memory="128MiB",
            dtype=dtype,  # pyright: ignore[reportArgumentType] - one of DTYPES
            attention=asked.attention,
            exact=True,
            spare=asked.spare,
            pipeline_parallel=grid.pipeline,
            tensor_parallel=grid.tensor,
        )
        async with settings as llm:
            found = await answered(llm, asked.request)
            expected = expected or found
            check(f"{grid}, {dtype}", found, expected)
            check(f"{grid}, {dtype}, again", await answered(llm, asked.request), expected)
            if kills and grid.size > 1:
                await killed(llm, grid, asked, expected)


async def killed(
    llm: AsyncLLM, grid: Grid, asked: argparse.Namespace, expected: list[tuple[object, ...]]
) -> None:
    """Kill a rank some times while the texts are computed again and again."""
    rng, done = random.Random(1), asyncio.Event()

    async def killing() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(KILL_PAUSE_S)
            while not (found := alive(llm)):  # noqa: ASYNC110 - it is not announced
                await asyncio.sleep(0.1)
            name = rng.choice(sorted(found))
            with suppress(ProcessLookupError):
                os.kill(found[name], signal.SIGKILL)
            print(f"{grid}: killed {name}", flush=True)
        done.set()

    task = asyncio.create_task(killing())
    passes = 0
    while not done.is_set() or passes == 0:
        found = await answered(llm, asked.request)
        passes += 1
        check(f"{grid}, pass {passes}", found, expected)
    await task
    state = llm.snapshot()
    recoveries, restarts = state.models.recoveries, state.actors.restarts
    print(f"{grid}: recoveries {recoveries}, restarts {restarts}", flush=True)


def alive(llm: AsyncLLM) -> dict[str, int]:
    """Return the processes of a group that is complete."""
    found = llm.snapshot().models.processes
    return {} if None in found.values() else {name: each for name, each in found.items() if each}


def main(arguments: Sequence[str]) -> None:
    names = [name for name, _ in ASKED]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("logits", "texts", "kills"))
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--grid", action="append", metavar="PxT", help="such as 2x1")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--model", default="", help="for texts and kills; the default one")
    parser.add_argument("--request", action="append", choices=names)
    parser.add_argument("--spare", default="off", choices=("on", "off"))
    asked = parser.parse_args(arguments)
    asked.request = asked.request or names
    grids = [Grid(*map(int, each.split("x"))) for each in asked.grid or ()] or GRIDS
    if asked.what == "logits":
        logits(asked.dtype or DTYPES, grids)
        return
    for dtype in asked.dtype or ("bf16",):
        asyncio.run(texts(asked, dtype, grids, KILLS if asked.what == "kills" else 0))


if __name__ == "__main__":
    main(sys.argv[1:])
