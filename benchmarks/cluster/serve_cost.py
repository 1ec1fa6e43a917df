"""What the way through Ray Serve costs: `python -m benchmarks.cluster.serve_cost`.

The same requests to `draftwerk serve`, to `draftwerk serve --replicas 1` and to what `draftwerk
cluster deploy` runs behind Serve's proxy, in turns, each time a new server: one client after the
other, and several at once. It prints the medians of the time to the first token, of the time
between two, of the tokens in a second, and of the CPU time for each token of all processes but the
model's. Options after `--` are those of all servers.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.cluster.deployed import deployed
from benchmarks.cluster.process_times import cpu_s_beside_models
from benchmarks.support.server import draftwerk
from draftwerk.loadtest.server.launcher import Server

SERVERS: dict[str, Callable[..., AbstractAsyncContextManager[Server]]] = {
    "plain": draftwerk,
    "one replica": partial(draftwerk, "--replicas", "1"),
    "behind Serve's proxy": deployed,
}
WORDS = "Once upon a time there was a small town by the sea, and the people of that town"


@dataclass(slots=True)
class ClientTimes:
    """What clients saw of one server."""

    first_ms: list[float] = field(default_factory=list[float])
    between_ms: list[float] = field(default_factory=list[float])
    tokens_s: list[float] = field(default_factory=list[float])
    """Of all clients together, one figure for each run."""
    cpu_ms: list[float] = field(default_factory=list[float])
    """Of all processes but the model's, for each token; what runs anyway is in it."""


async def streamed(
    http: aiohttp.ClientSession, url: str, number: int, tokens: int, times: ClientTimes
) -> None:
    """Read one stream to its end."""
    body = {
        "prompt": f"Request {number}. {WORDS}",
        "max_tokens": tokens,
        "seed": number,
        "ignore_eos": True,
        "stream": True,
        "speculation": {"enabled": False},
    }
    begun, first, last = perf_counter(), 0.0, 0.0
    async with http.post(url + "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.content:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
                last = perf_counter()
                first = first or last
    times.first_ms.append(1e3 * (first - begun))
    times.between_ms.append(1e3 * (last - first) / max(tokens - 1, 1))


async def load(
    http: aiohttp.ClientSession, url: str, clients: int, options: argparse.Namespace
) -> ClientTimes:
    """Run clients that send one request after another."""
    times, numbers = ClientTimes(), iter(range(options.requests))

    async def client() -> None:
        for number in numbers:
            await streamed(http, url, 100 * clients + number, options.tokens, times)

    begun, spent_s = perf_counter(), cpu_s_beside_models()
    await asyncio.gather(*(client() for _ in range(clients)))
    spent_s = cpu_s_beside_models() - spent_s
    times.cpu_ms.append(1e3 * spent_s / (options.requests * options.tokens))
    times.tokens_s.append(options.requests * options.tokens / (perf_counter() - begun))
    return times


async def run(options: argparse.Namespace) -> int:
    """Measure the servers in turns, and print the table."""
    found = {
        (name, clients): ClientTimes() for clients in options.clients for name in options.servers
    }
    for _ in range(options.turns):
        for name in options.servers:
            start = SERVERS[name]
            async with start(*options.serve) as server, aiohttp.ClientSession() as http:
                await load(http, server.url, max(options.clients), options)  # warm
                for clients in options.clients:
                    times = await load(http, server.url, clients, options)
                    total = found[name, clients]
                    total.first_ms += times.first_ms
                    total.between_ms += times.between_ms
                    total.tokens_s += times.tokens_s
                    total.cpu_ms += times.cpu_ms
    names = ("clients", "server", "TTFT p50 ms", "p95 ms", "between tokens p50 ms", "tokens/s")
    print("| " + " | ".join((*names, "CPU ms a token")) + " |")
    print("|---|---|---|---|---|---|---|")
    for (name, clients), times in found.items():
        late = sorted(times.first_ms)[int(0.95 * (len(times.first_ms) - 1))]
        print(
            f"| {clients} | {name} | {median(times.first_ms):.1f} | {late:.1f} | "
            f"{median(times.between_ms):.2f} | {median(times.tokens_s):.1f} | "
            f"{median(times.cpu_ms):.2f} |"
        )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3, help="new servers of each kind")
    parser.add_argument("--requests", type=int, default=24, help="in each load")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--servers", nargs="*", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("serve", nargs="*", help="after --: options of all servers")
    return asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
