"""What it costs to verify texts by their receipts: against generating them without drafts.

    python -m benchmarks.speed.verification [MODEL] [--texts 8] [--tokens 256] [--dtype bf16]

Texts are generated one after the other and verified one after the other, then all together.
"""

import argparse
import asyncio
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.support.server import draftwerk

PROMPT = "Number {}: a short history of the lighthouse, from the first fires to the last keeper."


async def measured(arguments: argparse.Namespace) -> None:
    options = [arguments.model] if arguments.model else []
    async with (
        draftwerk(*options, "--dtype", arguments.dtype, "--spare", "off") as server,
        aiohttp.ClientSession() as http,
    ):

        async def post(path: str, body: dict[str, Any]) -> tuple[Any, float]:
            begun = perf_counter()
            async with http.post(server.url + path, json=body) as reply:
                found = await reply.json()
            assert reply.status == 200, found
            return found, perf_counter() - begun

        asked = {
            "max_tokens": arguments.tokens,
            "ignore_eos": True,
            "temperature": 0.8,
            "receipt": True,
            "speculation": {"enabled": False},
        }
        await post("/v1/completions", asked | {"prompt": "warm up"})
        receipts: list[Any] = []
        generated: list[float] = []
        verified: list[float] = []
        for number in range(arguments.texts):
            body = asked | {"prompt": PROMPT.format(number), "seed": number}
            found, taken = await post("/v1/completions", body)
            receipts.append(found["receipt"])
            generated.append(taken)
        for receipt in receipts:
            found, taken = await post("/v1/verify", {"receipts": [receipt]})
            assert found["equal"], found
            verified.append(taken)
        found, together = await post("/v1/verify", {"receipts": receipts})
        assert found["equal"], found
    one, other = median(generated), median(verified)
    print(f"{arguments.tokens} tokens: generated without drafts in {one:.3f} s, verified in "
          f"{other:.3f} s: 1/{one / other:.1f}")  # fmt: skip
    mean = together / len(receipts)
    print(f"{len(receipts)} verified together: {mean:.3f} s each, 1/{one / mean:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--dtype", default="bf16")
    asyncio.run(measured(parser.parse_args()))


if __name__ == "__main__":
    main()
