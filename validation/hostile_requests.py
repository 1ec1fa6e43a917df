"""Bodies made to hold a server up, and the delay they cause: `python -m validation.hostile_requests
URL`.

Each is sent several times while `/health` is requested over and over on another connection: the
longest wait for it is the event loop's delay. Times are the client's, in milliseconds.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx

SIZE = 2**20
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
RESPONSES, DETOKENIZE = "/v1/responses", "/detokenize"
MESSAGES = b'"messages": [{"role": "user", "content": "x"}]'
CHAT_WITH = b"{" + MESSAGES + b", "


HostileBody = Callable[[], bytes]
"""Made when it is sent."""


def filled(start: bytes, item: bytes, end: bytes) -> HostileBody:
    """Return a body of the greatest size, full of one item."""
    count = (SIZE - len(start) - len(end)) // (len(item) + 1)
    return lambda: start + b",".join([item] * count) + end


def numbered(start: bytes, item: bytes, end: bytes) -> HostileBody:
    return lambda: start + b",".join(item % index for index in range(60_000)) + end


HOSTILE: dict[str, tuple[str, HostileBody]] = {
    "lists of one token": (COMPLETION, filled(b'{"prompt": [', b"[1]", b"]}")),
    "lists of eight tokens": (COMPLETION, filled(b'{"prompt": [', b"[1,1,1,1,1,1,1,1]", b"]}")),
    "empty lists": (COMPLETION, filled(b'{"prompt": [', b"[]", b"]}")),
    "too many tokens": (COMPLETION, filled(b'{"prompt": [', b"1", b"]}")),
    "too many tokens in a list": (COMPLETION, filled(b'{"prompt": [[', b"1", b"]]}")),
    "texts": (COMPLETION, filled(b'{"prompt": [', b'"x"', b"]}")),
    "deep": (COMPLETION, lambda: b'{"prompt": ' + b"[" * 200_000),
    "stops": (CHAT, filled(CHAT_WITH + b'"stop": [', b'"x"', b"]}")),
    "empty stops": (CHAT, filled(CHAT_WITH + b'"stop": [', b'""', b"]}")),
    "includes": (CHAT, filled(CHAT_WITH + b'"include": [', b'""', b"]}")),
    "methods": (CHAT, filled(CHAT_WITH + b'"speculation": {"methods": [', b'"x"', b"]}}")),
    "biases": (CHAT, numbered(CHAT_WITH + b'"logit_bias": {', b'"%d": 1', b"}}")),
    "messages": (CHAT, filled(b'{"messages": [', b'{"role":"user","content":""}', b"]}")),
    "empty messages": (CHAT, filled(b'{"messages": [', b"{}", b"]}")),
    "parts": (
        CHAT,
        filled(
            b'{"messages": [{"role": "user", "content": [', b'{"type":"text","text":""}', b"]}]}"
        ),
    ),
    "one field again and again": (CHAT, filled(CHAT_WITH, b'"n":1', b"}")),
    "an unknown field again and again": (CHAT, filled(CHAT_WITH, b'"z":1', b"}")),
    "unknown lists": (CHAT, filled(CHAT_WITH + b'"z": [', b"[]", b"]}")),
    "unsupported lists": (CHAT, filled(CHAT_WITH + b'"tools": [', b"[]", b"]}")),
    "n of 10^9": (CHAT, lambda: CHAT_WITH + b'"n": 1000000000}'),
    "a number of a million digits": (
        CHAT,
        lambda: CHAT_WITH + b'"n": ' + b"9" * (SIZE - 100) + b"}",
    ),
    "a lone surrogate": (CHAT, lambda: b'{"messages": [{"role": "user", "content": "\\ud800"}]}'),
    "metadata": (RESPONSES, numbered(b'{"input": "x", "metadata": {', b'"%d": ""', b"}}")),
    "input": (RESPONSES, filled(b'{"input": [', b'{"role":"user","content":""}', b"]}")),
    "tokens": (DETOKENIZE, filled(b'{"tokens": [', b"1", b"]}")),
}
OVER: dict[str, tuple[str, HostileBody]] = {
    "500 k stops": (CHAT, lambda: json.dumps({"messages": [], "stop": ["x"] * 500_000}).encode()),
    "tokens over the context": (COMPLETION, lambda: b'{"prompt": [' + b"1," * 200_000 + b"1]}"),
    "a text over the context": (COMPLETION, lambda: b'{"prompt": "' + b"word " * 200_000 + b'"}'),
}
"""Refused by their size, or by the engine."""


@asynccontextmanager
async def watched(url: str) -> AsyncGenerator[list[float], None]:
    """Request `/health` while the block lasts; the list fills with seconds."""
    waits: list[float] = []

    async def watch() -> None:
        async with httpx.AsyncClient(base_url=url) as http:
            while True:
                begun = time.perf_counter()
                await http.get("/health")
                waits.append(time.perf_counter() - begun)

    watching = asyncio.create_task(watch())
    try:
        yield waits
    finally:
        watching.cancel()


async def run(url: str, rounds: int) -> int:
    """Print a row per body; returns how many were not refused."""
    taken = 0
    print(f"{'body':36s}{'status':>7s}{'best':>9s}{'median':>9s}{'health, worst':>15s}")
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        for name, (path, made) in (HOSTILE | OVER).items():
            body = made()
            took: list[float] = []
            statuses: set[int] = set()
            async with watched(url) as waits:
                await asyncio.sleep(0.05)
                for _ in range(rounds):
                    begun = time.perf_counter()
                    statuses.add((await http.post(path, content=body)).status_code)
                    took.append(time.perf_counter() - begun)
            middle = sorted(took)[len(took) // 2]
            numbers = "".join(f"{1e3 * value:9.1f}" for value in (min(took), middle))
            print(f"{name:36s}{'/'.join(map(str, statuses)):>7s}{numbers}{1e3 * max(waits):15.1f}")
            taken += not all(400 <= each < 500 for each in statuses)
    return taken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(run(arguments.url, arguments.rounds)))
