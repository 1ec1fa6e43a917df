"""Tokens found in the prefix cache under three orders of eviction, replayed without a model.

    python -m benchmarks.speed.replacement [--seeds 5]

Least recently used, ours, and Belady's (evicts what is needed again last; nothing can do much
better), on three traces: conversations of many turns, agents that share instructions and tools, and
scans of long documents beside many tenants. Every trace is drawn from a seed; a request is served
whole before the next one, by the pool and the tables of the server.
"""

import argparse
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from statistics import mean
from typing import NamedTuple

from benchmarks.support.least_recently_used import LeastRecentlyUsed
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import ROOT, BlockNamer
from draftwerk.cache.replacement import (
    NONE,
    CostAware,
    EvictionOrder,
    Origin,
)
from draftwerk.cache.tables import BlockTable

BLOCK_SIZE = 16
BLOCK_COUNT = 2048
"""32 768 tokens: 750 MiB of the default model's."""
REQUESTS = 3000
NAMER = BlockNamer(b"replay")


class Request(NamedTuple):
    """A prompt with its answer, and whose it is."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    space: str


class TextMaker:
    """Draws texts that nobody else has."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0

    def draw(self, low: int, high: int) -> tuple[int, ...]:
        """Return low to high tokens, short ones more often."""
        length = round(low * (high / low) ** self.rng.random())
        self.number += 1
        return tuple(self.number * 100_000 + index for index in range(length))


def conversations(rng: random.Random) -> Iterator[Request]:
    """Yield turns of 60 conversations at a time, each with all turns before; some pause."""
    text = TextMaker(rng)
    system = text.draw(300, 300)
    live: list[tuple[int, ...]] = []
    while True:
        if len(live) < 60 or rng.random() < 0.1:
            live.append(system)
        # The latest go on more often than those before them.
        index = min(int(rng.expovariate(1 / 15)), len(live) - 1)
        index = len(live) - 1 - index
        before = live.pop(index)
        prompt, output = before + text.draw(20, 300), text.draw(30, 400)
        yield Request(prompt, output, "")
        if rng.random() < 0.85 and len(prompt) < 4000:
            live.append(prompt + output)


def agents(rng: random.Random) -> Iterator[Request]:
    """Yield steps of agents: 40 sets of instructions with tools, some far more popular."""
    text = TextMaker(rng)
    tools = [text.draw(600, 3000) for _ in range(40)]
    popular = [1 / (rank + 1) for rank in range(len(tools))]
    running: list[tuple[int, ...]] = []
    while True:
        if len(running) < 12:
            running.append(rng.choices(tools, popular)[0] + text.draw(30, 300))
        prompt = running.pop(rng.randrange(len(running)))
        output = text.draw(20, 150)
        yield Request(prompt, output, "")
        if rng.random() < 0.8:
            running.append(prompt + output + text.draw(30, 600))


def tenants(rng: random.Random) -> Iterator[Request]:
    """Yield requests of 50 tenants, each with a system prompt, beside one that scans documents."""
    text = TextMaker(rng)
    systems = [text.draw(200, 1200) for _ in range(50)]
    weights = [1 / (rank + 1) ** 0.7 for rank in range(len(systems))]
    while True:
        if rng.random() < 0.25:
            yield Request(text.draw(2000, 6000), text.draw(50, 200), "scanner")
            continue
        tenant = rng.choices(range(len(systems)), weights)[0]
        prompt = systems[tenant] + text.draw(20, 400)
        yield Request(prompt, text.draw(30, 300), f"tenant {tenant}")


TRACES: dict[str, Callable[[random.Random], Iterator[Request]]] = {
    "conversations": conversations,
    "agents with shared prefixes": agents,
    "scans beside many tenants": tenants,
}


class Farthest:
    """Belady's order: evicts the block whose name is asked for again last, or never."""

    def __init__(self, requests: list[Request]) -> None:
        self.now = 0
        self._uses: dict[bytes, list[int]] = {}
        for number, request in enumerate(requests):
            for name in names_of(request):
                self._uses.setdefault(name, []).append(number)
        self._names: dict[int, tuple[bytes, int]] = {}
        self._heap: list[tuple[float, int, int]] = []
        """(- next use, - depth, block), with entries that hold no longer."""

    def add(self, block: int, name: bytes, origin: Origin) -> None:
        self._names[block] = name, origin.depth
        heappush(self._heap, self._place(block))

    def remove(self, block: int) -> None:
        del self._names[block]

    def reused(self, name: bytes, name_space: str) -> None:
        """Nothing is learnt: everything is known."""

    def forget(self, name: bytes) -> None:
        """Everything is known."""

    def evict(self, avoid: AbstractSet[int] = NONE) -> int | None:
        assert not avoid, "nothing is loaded here"
        while self._heap:
            place = heappop(self._heap)
            block = place[2]
            if block in self._names:
                if place == (now := self._place(block)):
                    del self._names[block]
                    return block
                if now[0] < place[0]:  # its use has passed; the one after it is later
                    heappush(self._heap, now)
        return None

    def _place(self, block: int) -> tuple[float, int, int]:
        name, depth = self._names[block]
        uses = self._uses.get(name, [])
        index = bisect_right(uses, self.now)
        following = uses[index] if index < len(uses) else float("inf")
        return -following, -depth, block

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, block: object, /) -> bool:
        return block in self._names

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def check(self) -> None:
        """Everything is known."""


def names_of(request: Request) -> Iterator[bytes]:
    """Yield the names of the whole blocks that a prompt can be found by."""
    name = ROOT
    for start in range(0, (len(request.prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE, BLOCK_SIZE):
        name = NAMER.name(name, request.prompt[start : start + BLOCK_SIZE], request.space)
        yield name


def replay(requests: list[Request], order: EvictionOrder, blocks: int) -> float:
    """Return the share of the prompts' tokens that were found in the cache."""
    pool = BlockPool(blocks, BLOCK_SIZE, order)
    found = asked = 0
    for number, request in enumerate(requests):
        if isinstance(order, Farthest):
            order.now = number
        table = BlockTable(pool, NAMER, request.space)
        found += table.match(request.prompt)
        asked += len(request.prompt)
        tokens = request.prompt + request.output
        assert table.reserve(len(tokens)), "a request larger than the pool"
        table.commit(tokens, len(tokens))
        table.release()
    pool.check()
    return found / asked


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.replacement")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=BLOCK_COUNT)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--belady", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    print(f"hit-token rates, {options.blocks} blocks of {BLOCK_SIZE}, {options.requests} requests")
    print(f"{'':30s} {'LRU':>7s} {'ours':>7s} {'Belady':>7s} {'ours / LRU':>11s}")
    for name, draw in TRACES.items():
        rates: list[tuple[float, float, float]] = []
        for seed in range(options.seeds):
            drawn = draw(random.Random(seed))
            requests = [next(drawn) for _ in range(options.requests)]
            rates.append(
                (
                    replay(requests, LeastRecentlyUsed(), options.blocks),
                    replay(requests, CostAware(), options.blocks),
                    replay(requests, Farthest(requests), options.blocks) if options.belady else 0.0,
                )
            )
        lru, ours, best = (mean(column) for column in zip(*rates, strict=True))
        worst = min(one[1] / one[0] for one in rates)
        print(f"{name:30s} {lru:7.3f} {ours:7.3f} {best:7.3f} {ours / lru:6.3f} ({worst:.3f})")


if __name__ == "__main__":
    main()
