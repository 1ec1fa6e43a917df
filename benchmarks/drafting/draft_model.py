"""What a draft model gains: `python -m benchmarks.drafting.draft_model STUDENT prompts.jsonl`.

One engine runs with `--draft STUDENT`, another without. The same prompts are decoded in turns by

    none      no drafts, two rounds under way
    sources   the sources of a server without a draft model
    both      those and the draft model
    model     the draft model alone

with so many users, each with one prompt after the other, medians of the repeats; all texts must be
equal. Of the second engine's rounds it is told which share of the time its draft model worked
before a step (`drafting`), and so idled otherwise, and how often a token that it drafted was right.
`training.distillation` makes a STUDENT; `benchmarks.drafting.draft_ahead` measures what would be
gained if it drafted while the target computes.
"""

import argparse
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain, count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import anyio

from benchmarks.speed.engine_overhead import spans
from benchmarks.support.engine import chat, engine
from benchmarks.support.prompts import by_category
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, Failed
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling

HEADING = "users drafts     tok/s  tok/step  right  drafting  step ms"
WAYS = {
    "none": Speculation(enabled=False),
    "sources": Speculation(),
    "both": Speculation(),
    "model": Speculation(methods=("draft",)),
}
WITH_MODEL = ("both", "model")


class PromptsDecoded(NamedTuple):
    """All prompts decoded once."""

    texts: dict[str, str]
    """By prompt."""
    token_rate: float
    per_step: float
    right: float
    """Share of the draft model's verified tokens that were right."""
    drafting: float
    """Share of the time that went by before steps, in which the draft model worked."""
    step_ms: float


class PromptUsers:
    """Some users' prompts on their way through an engine."""

    def __init__(self, running: Engine, options: Options, prompts: Sequence[str]) -> None:
        self.running, self.options = running, options
        self.left = list(enumerate(prompts))[::-1]
        self.texts: dict[str, str] = {}
        self.tokens, self.steps = 0, 0

    async def user(self) -> None:
        """Decode what is left, one prompt after the other."""
        while self.left:
            number, prompt = self.left.pop()
            name = f"{self.options.tenant} {number}"
            async with self.running.generate(chat(prompt), self.options, request_id=name) as events:
                async for event in events:
                    match event:
                        case Delta() | Ended():
                            self.texts[prompt] = self.texts.get(prompt, "") + event.text
                        case Failed():
                            raise RuntimeError(event.reason)
                        case _:
                            pass
                    if isinstance(event, Ended):
                        self.tokens += event.token_count
                        self.steps += event.stats.step_count


async def decode(
    running: Engine, options: Options, prompts: Sequence[str], users: int
) -> PromptsDecoded:
    """Decode all prompts with so many users."""
    decoding = PromptUsers(running, options, prompts)
    before, begun = running.snapshot(), perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(users):
            tasks.start_soon(decoding.user)
    ended, after = perf_counter(), running.snapshot()
    worked = sum(last - first for first, last in spans(running, "draft", begun, ended))
    rounds = after.rounds - before.rounds
    drafted = _by_source(after.drafted_by_source, before.drafted_by_source)
    return PromptsDecoded(
        decoding.texts,
        decoding.tokens / (ended - begun),
        decoding.tokens / decoding.steps,
        _by_source(after.accepted_by_source, before.accepted_by_source) / max(1, drafted),
        1e-3 * worked / (ended - begun),
        (after.device_ms - before.device_ms) / rounds,
    )


def _by_source(after: dict[str, int], before: dict[str, int]) -> int:
    return after.get("draft", 0) - before.get("draft", 0)


def told(users: int, way: str, runs: Sequence[PromptsDecoded]) -> str:
    """Return the medians of some runs as a line."""
    return (
        f"{users:5d} {way:8s} {median(run.token_rate for run in runs):7.1f} "
        f"{median(run.per_step for run in runs):9.2f} {median(run.right for run in runs):6.2f} "
        f"{median(run.drafting for run in runs):9.2f} {median(run.step_ms for run in runs):8.2f}"
    )


async def main(arguments: argparse.Namespace) -> None:
    found = by_category(arguments.prompts, arguments.count).values()
    prompts = list(chain.from_iterable(found))
    number = count()
    async with AsyncExitStack() as stack:
        plain = Settings(model=arguments.model, dtype=arguments.dtype, kv_memory="256MiB")
        drafted = Settings(
            model=arguments.model,
            dtype=arguments.dtype,
            kv_memory="256MiB",
            draft=arguments.student,
        )
        without = await stack.enter_async_context(engine(plain))
        with_model = await stack.enter_async_context(engine(drafted))
        expected: dict[str, str] = {}

        async def run(way: str, users: int, asked: Sequence[str]) -> PromptsDecoded:
            options = Options(
                sampling=Sampling(temperature=arguments.temperature, seed=1),
                tokens_max=arguments.tokens,
                speculation=WAYS[way],
                tenant=f"run {next(number)}",  # nobody drafts from another run's texts
            )
            running = with_model if way in WITH_MODEL else without
            found = await decode(running, options, asked, users)
            for prompt, text in found.texts.items():
                assert expected.setdefault(prompt, text) == text, (way, users, prompt)
            return found

        for way in WAYS:
            await run(way, 1, prompts[:2])
        print(HEADING)
        for users in arguments.users:
            asked = prompts[: max(arguments.least, 2 * users)]
            runs: dict[str, list[PromptsDecoded]] = {way: [] for way in WAYS}
            for repeat in range(arguments.repeats):
                for way in list(WAYS)[:: 1 if repeat % 2 == 0 else -1]:
                    runs[way].append(await run(way, users, asked))
            for way, each in runs.items():
                print(told(users, way, each), flush=True)
        print(f"{len(expected)} texts, equal in all ways")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("student", help="the draft model")
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--count", type=int, default=6, help="prompts of each category")
    parser.add_argument("--least", type=int, default=6, help="prompts that few users share")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--model", default="", help="the target")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
