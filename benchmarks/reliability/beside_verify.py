"""The first token of one key while the server verifies another key's receipt.

    python -m benchmarks.reliability.beside_verify
    python -m benchmarks.reliability.beside_verify --tokens 1500 --times 40 --dtype int8

Options that it does not know are those of `draftwerk serve`. It starts a server, has it write a
text with a receipt, and asks one token again and again, alone and beside the verification: medians,
their ratio, and what the verification takes alone and beside those requests. Exits with 1 where
the ratio is above `--ratio-max`, or a verdict is not `equal`.
"""

import argparse
import asyncio
import sys
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.support.bench import percentile
from benchmarks.support.server import draftwerk, quiet

KEYS = {"one": "first-key", "two": "second-key"}
RATIO_MAX = 3.0
PAUSE_S = 0.02
"""Between two requests: their client is no load."""


class KeyClient:
    """One key's requests."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str) -> None:
        self._http, self._url = http, url
        self._headers = {"authorization": f"Bearer {key}"}
        self._count = 0

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request."""
        async with self._http.post(self._url + path, json=body, headers=self._headers) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def receipt(self, tokens: int) -> dict[str, Any]:
        """Return the receipt of a text of so many tokens."""
        body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "seed": 7}
        return (await self.post("/v1/completions", body | {"receipt": True}))["receipt"]

    async def verify(self, receipt: dict[str, Any]) -> float:
        """Verify a receipt; returns the seconds that it took."""
        begun = perf_counter()
        reply = await self.post("/v1/verify", {"receipts": [receipt]})
        assert reply["verdicts"][0]["verdict"] == "equal", reply
        return perf_counter() - begun

    async def first_token(self) -> float:
        """Return the seconds to the only token of a request, whose prompt is none of before."""
        self._count += 1
        begun = perf_counter()
        body = {"prompt": f"{self._count} birds sing in", "max_tokens": 1, "seed": self._count}
        await self.post("/v1/completions", body)
        return perf_counter() - begun


async def first_tokens_beside(client: KeyClient, verifying: asyncio.Task[float]) -> list[float]:
    """Return the times of first tokens while a verification is under way."""
    found: list[float] = []
    while not verifying.done():
        seconds = await client.first_token()
        if not verifying.done():
            found.append(seconds)
        await asyncio.sleep(PAUSE_S)
    return found


async def run(arguments: argparse.Namespace, options: list[str]) -> int:
    """Return whether the goal was missed."""
    keys = [word for name, key in KEYS.items() for word in ("--api-key", f"{name}:{key}")]
    async with draftwerk(*keys, *options) as server, aiohttp.ClientSession() as http:
        one, two = (KeyClient(http, server.url, key) for key in KEYS.values())
        receipt = await one.receipt(arguments.tokens)
        alone, beside, verify_alone, verify_beside = [], [], [], []
        for _ in range(arguments.repeats):
            headers = {"authorization": f"Bearer {KEYS['one']}"}
            async with aiohttp.ClientSession(headers=headers) as watching:
                await quiet(watching, server.url)
            for _ in range(arguments.times):
                alone.append(await two.first_token())
                await asyncio.sleep(PAUSE_S)
            verify_alone.append(await one.verify(receipt))
            verifying = asyncio.create_task(one.verify(receipt))
            await asyncio.sleep(PAUSE_S)
            beside += await first_tokens_beside(two, verifying)
            verify_beside.append(await verifying)
    ratio = median(beside) / median(alone)
    for name, values in (("alone", alone), ("beside the verification", beside)):
        print(
            f"first token {name}: {1e3 * median(values):.1f} ms (p50 of {len(values)}),"
            f" {1e3 * percentile(values, 0.95):.1f} ms (p95)"
        )
    print(
        f"ratio {ratio:.2f}; {arguments.tokens} tokens verified in {median(verify_alone):.2f} s"
        f" alone, {median(verify_beside):.2f} s beside those requests"
    )
    return int(ratio > arguments.ratio_max)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1500, help="of the verified text")
    parser.add_argument("--times", type=int, default=30, help="requests alone, in each repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ratio-max", type=float, default=RATIO_MAX)
    return asyncio.run(run(*parser.parse_known_args()))


if __name__ == "__main__":
    sys.exit(main())
