"""Whether speculation ever costs: `python -m benchmarks.speed.never_slower spec_bench.jsonl`.

For each category and number of users, the same requests are served with drafts (auto) and without,
in turn; the figure is the median over the repeats of seconds without ÷ seconds with. "adversarial"
prompts are noise at a high temperature, which no source can guess and every source keeps guessing.
Each run has a tenant of its own, so that none finds another's prompts or outputs.
"""

import argparse
import json
import platform
import random
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import NamedTuple

import anyio

from benchmarks.support.engine import chat, engine
from benchmarks.support.prompts import by_category
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Failed
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling

ADVERSARIAL = "adversarial"
NOISE_TEMPERATURE = 1.5
REQUESTS_MIN = 8
"""Requests in a run, where there are fewer users."""
BOUND = 0.98


class Cell(NamedTuple):
    """One category at one number of users."""

    category: str
    users: int
    ratio: float
    """Median over the repeats: above one, drafts gain."""
    ratios: list[float]


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


async def cells(running: Engine, arguments: argparse.Namespace) -> list[Cell]:
    """Measure every cell, printing as it goes."""
    count = max(REQUESTS_MIN, *arguments.users)
    categories = by_category(arguments.prompts, count)
    categories[ADVERSARIAL] = noise(count, arguments.seed)
    found: list[Cell] = []
    for category, prompts in categories.items():
        temperature = NOISE_TEMPERATURE if category == ADVERSARIAL else arguments.temperature
        for users in arguments.users:
            ratios: list[float] = []
            for repeat in range(arguments.repeats):
                seconds: dict[bool, float] = {}
                for drafts in (True, False) if repeat % 2 else (False, True):
                    options = Options(
                        sampling=Sampling(temperature=temperature, seed=arguments.seed),
                        tokens_max=arguments.tokens,
                        ignore_eos=True,
                        speculation=Speculation(enabled=drafts),
                        tenant=f"{category} {users} {repeat} {drafts}",
                    )
                    wave = prompts[: max(REQUESTS_MIN, users)]
                    seconds[drafts] = await serve(running, wave, users, options)
                ratios.append(seconds[False] / seconds[True])
            cell = Cell(category, users, median(ratios), ratios)
            mark = "" if cell.ratio >= BOUND else "  slower"
            spread = f"{min(ratios):.3f} .. {max(ratios):.3f}"
            print(f"{category:16s} {users:4d} {cell.ratio:7.3f}  {spread}{mark}", flush=True)
            found.append(cell)
    return found


async def main(arguments: argparse.Namespace) -> None:
    settings = Settings(dtype=arguments.dtype, kv_memory=arguments.kv_memory)
    async with engine(settings) as running:
        warm = Options(sampling=Sampling(temperature=0.0), tokens_max=32, tenant="warm")
        await serve(running, ["Say something."] * 4, 4, warm)
        print(f"{'':16s} users   ratio  spread   (seconds without drafts / with)")
        found = await cells(running, arguments)
    worst = min(found, key=lambda cell: cell.ratio)
    mean = geometric_mean([cell.ratio for cell in found])
    print(f"worst {worst.ratio:.3f} ({worst.category}, {worst.users}), mean {mean:.3f}")
    if arguments.output:
        options = {
            name: getattr(value, "name", value)
            for name, value in vars(arguments).items()
            if name != "output"
        }
        record = {
            "options": options,
            "machine": platform.machine(),
            "cells": [cell._asdict() for cell in found],
        }
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.never_slower", description=__doc__
    )
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4, 16, 48])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--kv-memory", default="2GiB", help="48 long prompts at once take much")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    anyio.run(main, parser.parse_args(), backend_options={"use_uvloop": True})
