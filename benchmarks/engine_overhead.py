"""What the engine adds to the device's time, and what batching gains; `--help` has the knobs.

Overhead is (wall - device) / rounds while every sequence is decoding: planning, messages, process
hops, drafting, detokenizing, all of it that the device does not hide.
"""

import argparse
from time import perf_counter

import anyio

from actors.engine import Engine
from actors.messages import Options
from api.config import Settings
from benchmarks.server import chat, engine, generate
from speculative.sampling import Sampling

QUESTION = "Count from {} upwards, one number a line, and say nothing else."


async def batch(running: Engine, names: list[str], tokens: int) -> tuple[float, int]:
    """Run requests at once; returns (seconds, tokens)."""
    options = Options(sampling=Sampling(temperature=0.0), tokens_max=tokens, ignore_eos=True)
    counts: list[int] = []

    async def one(name: str) -> None:
        counts.append((await generate(running, chat(QUESTION.format(name)), options, name))[1])

    begun = perf_counter()
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
    return perf_counter() - begun, sum(counts)


async def overhead(running: Engine, sequences: int, tokens: int) -> None:
    before = running.snapshot()
    seconds, count = await batch(running, [f"{sequences}:{n}" for n in range(sequences)], tokens)
    after = running.snapshot()
    rounds = after.rounds - before.rounds
    device_ms = after.device_ms - before.device_ms
    print(
        f"{sequences:9d} {rounds:6d} {1e3 * seconds / rounds:9.2f} {device_ms / rounds:9.2f} "
        f"{(1e3 * seconds - device_ms) / rounds:11.3f} {count / seconds:8.1f}"
    )


async def main(arguments: argparse.Namespace) -> None:
    settings = Settings(dtype=arguments.dtype, speculate=arguments.speculate)
    async with engine(settings) as running:
        await batch(running, ["warm"], 8)
        print("sequences rounds  wall ms  device ms overhead ms    tok/s   (ms per round)")
        for sequences in (1, 8, 16):
            await overhead(running, sequences, arguments.tokens)
        sequential = 0.0
        for n in range(16):
            sequential += (await batch(running, [f"s{n}"], arguments.tokens))[0]
        concurrent, _ = await batch(running, [f"c{n}" for n in range(16)], arguments.tokens)
        print(f"16 at once are {sequential / concurrent:.1f} times as fast as 16 in turn")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--tokens", type=int, default=64)
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
