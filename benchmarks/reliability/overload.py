"""Five times more than the server can do, from two API keys: who is served, and how fast is a no?

    python -m benchmarks.reliability.overload
    python -m benchmarks.reliability.overload --places 8 --clients 16 --replicas 2

Options that it does not know are those of `draftwerk serve`; `--places` are those of each replica.
It starts a server of its own, measures in a closed loop what it does, and then offers `--times` as
much in an open loop, both keys alike or as `--share` divides it. It prints, and checks, the time of
a refusal as its client sees it, the goodput of accepted requests as a fraction of the closed
loop's, and Jain's index of the tokens that the two keys got.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from benchmarks.support.bench import percentile
from benchmarks.support.prompts import WORDS
from benchmarks.support.server import draftwerk

KEYS = {"one": "first-key", "two": "second-key"}
HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n"
)
TOKENS = 32
REFUSAL_MS, GOODPUT, JAIN = 10.0, 0.8, 0.95


@dataclass(slots=True)
class OutcomeCounts:
    """What came back."""

    tokens: Counter[str] = field(default_factory=Counter[str])
    """Of requests that finished within the window, by key."""
    refusals_s: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])


@dataclass(slots=True)
class ClientLoad:
    """Clients with one kind of request."""

    url: str
    dice: random.Random
    tally: OutcomeCounts = field(default_factory=OutcomeCounts)
    until: float = 0.0
    """When the window ends, on the performance counter."""

    async def ask(self, key: str) -> None:
        """Send one request, and record its outcome."""
        body: dict[str, Any] = {
            "prompt": " ".join(self.dice.choices(WORDS, k=16)),
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        begun = perf_counter()
        try:
            status, reply = await posted(self.url, json.dumps(body).encode(), KEYS[key])
        except OSError:
            self.tally.statuses[0] += 1
            return
        ended = perf_counter()
        self.tally.statuses[status] += 1
        if status == 503:
            self.tally.refusals_s.append(ended - begun)
        elif status == 200 and ended <= self.until:
            self.tally.tokens[key] += json.loads(reply)["usage"]["completion_tokens"]

    async def closed(self, clients: int, seconds: float) -> float:
        """Run clients that send one request after another; returns tokens per second."""
        self.until = perf_counter() + seconds

        async def client(key: str) -> None:
            while perf_counter() < self.until:
                await self.ask(key)

        keys = itertools.islice(itertools.cycle(KEYS), clients)
        await asyncio.gather(*(client(key) for key in keys))
        return self.tally.tokens.total() / seconds

    async def open(self, rate: float, share: float, seconds: float) -> float:
        """Send requests at Poisson times, whatever their outcome; returns tokens per second."""
        begun = perf_counter()
        self.until = begun + seconds
        at, asking = begun, list[asyncio.Task[None]]()
        while (at := at + self.dice.expovariate(rate)) < self.until:
            await asyncio.sleep(max(at - perf_counter(), 0))
            key = "one" if self.dice.random() < share else "two"
            asking.append(asyncio.create_task(self.ask(key)))
        await asyncio.gather(*asking)
        return self.tally.tokens.total() / seconds


async def posted(url: str, body: bytes, key: str) -> tuple[int, bytes]:
    """Post to completions over a connection of its own; returns the status and the body.

    A client that does more for its user would count its own time as the server's.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(HEAD % (key.encode(), len(body)) + body)
        head, _, reply = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), reply
    finally:
        writer.close()


def jain(values: list[int]) -> float:
    """Return Jain's index: 1 for equal shares, 1/n if one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


async def run(arguments: argparse.Namespace, options: list[str]) -> int:
    """Return how many of the three goals were missed."""
    keys = [word for name, key in KEYS.items() for word in ("--api-key", f"{name}:{key}")]
    places = ["--requests-max", str(arguments.places), "--queue-max", str(arguments.queue)]
    clients = arguments.clients or arguments.places
    async with draftwerk(*keys, *places, *options) as server:
        url = server.url
        dice = random.Random(arguments.seed)
        await ClientLoad(url, dice).closed(clients, 3)
        peak = await ClientLoad(url, dice).closed(clients, arguments.seconds)
        rate = arguments.times * peak / TOKENS
        print(f"closed loop: {peak:.1f} tok/s; offered: {rate:.1f} requests/s", flush=True)
        load = ClientLoad(url, dice)
        goodput = await load.open(rate, arguments.share, arguments.seconds)
    tally = load.tally
    fairness = jain([tally.tokens[key] for key in KEYS])
    shares = (0.5, 0.95, 0.99)
    middle, late, last = (1e3 * percentile(tally.refusals_s, share) for share in shares)
    print(f"statuses: {dict(tally.statuses)}; tokens by key: {dict(tally.tokens)}")
    print(
        f"refusals: p50 {middle:.1f} ms, p95 {late:.1f} ms, p99 {last:.1f} ms "
        f"(goal: under {arguments.refusal_ms:g})"
    )
    print(f"goodput: {goodput:.1f} tok/s, {goodput / peak:.2f} of peak (goal: {GOODPUT:g})")
    print(f"fairness: {fairness:.3f} (goal: {JAIN:g})")
    return sum((not last < arguments.refusal_ms, goodput < GOODPUT * peak, fairness < JAIN))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--times", type=float, default=5, help="offered load over capacity")
    parser.add_argument("--share", type=float, default=0.5, help="of the first key")
    parser.add_argument("--places", type=int, default=16)
    parser.add_argument("--clients", type=int, default=0, help="of the closed loop; 0: as places")
    parser.add_argument("--queue", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--refusal-ms", type=float, default=REFUSAL_MS, help="p99, at most")
    sys.exit(asyncio.run(run(*parser.parse_known_args())))


if __name__ == "__main__":
    main()
