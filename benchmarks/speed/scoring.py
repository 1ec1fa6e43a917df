"""Log-probabilities of texts a second, against llama.cpp's library on the same file.

    python -m benchmarks.speed.scoring [--peer FOLDER] [--texts 16] [--tokens 256] [--repeats 5]

Ours are asked over HTTP (`echo`, `logprobs`, `max_tokens` 0), all texts in one request; llama.cpp
computes the logits of one text after the other in this process, and what is made of them is not
counted. FOLDER is what `npm pack @node-llama-cpp/linux-x64` unpacks to. Both in turn.
"""

import argparse
import asyncio
import random
from pathlib import Path
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.files import PEER_FOLDER
from benchmarks.support.llama_library import LlamaModel
from benchmarks.support.server import draftwerk
from draftwerk.model.checkpoint.hub import embedded
from draftwerk.model.native.isa import chosen


def texts(count: int, length: int, seed: int) -> list[list[int]]:
    """Return random texts that share no prefix, as tokens."""
    rng = random.Random(seed)
    return [rng.choices(range(1000, 40000), k=length) for _ in range(count)]


async def measured(arguments: argparse.Namespace) -> None:
    count, length = arguments.texts, arguments.tokens
    peer = LlamaModel(arguments.peer, embedded(), 1, length, chosen().name)
    times: dict[str, list[float]] = {"draftwerk": [], "llama.cpp": []}
    async with draftwerk("--spare", "off") as server, aiohttp.ClientSession() as http:
        for turn in range(arguments.repeats + 1):
            asked = texts(count, length, turn)
            body = {"prompt": asked, "max_tokens": 0, "echo": True, "logprobs": 0}
            begun = perf_counter()
            async with http.post(server.url + "/v1/completions", json=body) as reply:
                found = await reply.json()
            assert reply.status == 200, found
            ours = perf_counter() - begun
            begun = perf_counter()
            for text in asked:
                peer.logits(text)
            theirs = perf_counter() - begun
            if turn:  # the first warms up
                times["draftwerk"].append(count * length / ours)
                times["llama.cpp"].append(count * length / theirs)
    peer.close()
    ours, theirs = (median(each) for each in times.values())
    print(f"{count} texts of {length} tokens: {ours:.0f} tokens/s, llama.cpp's library "
          f"{theirs:.0f}: {ours / theirs:.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--peer", type=Path, default=PEER_FOLDER)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    asyncio.run(measured(parser.parse_args()))


if __name__ == "__main__":
    main()
