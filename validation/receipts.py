"""Receipts of many requests, verified by a server of another instruction set, and changed.

    python -m validation.receipts [--count 500] [--isa avx512] [--other avx2] [--model DIR]

One server answers requests of all parameters and protocols in a crowd, with drafts. Another one,
of another instruction set, verifies their receipts: all must be equal. Then each receipt is changed
in one token, parameter or digit: none may be accepted, and each verdict must name the place. Last,
texts of an int4 server are given receipts of the bf16 server's fingerprint: each must be refused
within 300 tokens. Exits with 1 if anything of this fails.
"""

import argparse
import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any

import aiohttp
import msgspec

from draftwerk.api.openai.receipts.receipt import Receipt, ReceiptText, options_of, receipt_of
from draftwerk_tools.loadtest.server.launcher import free_port, says_ready, serving
from validation.golden_requests import JsonBody, golden_requests

AT_ONCE = 8
BATCH = 16
FORGED_MAX = 300
"""Tokens within which a text of another format must be found out."""
FORGED_TEXTS = 8
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 12}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
ReceiptJson = dict[str, Any]


@asynccontextmanager
async def server(isa: str, *options: str) -> AsyncGenerator["ReceiptClient"]:
    """Serve with the kernels of an instruction set."""
    port = free_port()
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *options]
    url = f"http://127.0.0.1:{port}"
    env = {"DRAFTWERK_ISA": isa} if isa else {}
    async with serving(command, url, env=env, ready=says_ready), aiohttp.ClientSession() as http:
        yield ReceiptClient(http, url)


class ReceiptClient:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url = http, url
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def receipt(self, path: str, body: JsonBody) -> ReceiptJson:
        """Return the receipt of one request's answer."""
        async with (
            self._turns,
            self.http.post(self.url + path, json=body | {"receipt": True}) as reply,
        ):
            text = await reply.text()
            assert reply.status == 200, text
        if not body.get("stream"):
            return json.loads(text)["receipt"]
        events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        last = json.loads(events[-1])
        return (last.get("response") or last)["receipt"]

    async def verdicts(self, receipts: list[ReceiptJson]) -> list[ReceiptJson]:
        found: list[ReceiptJson] = []
        for start in range(0, len(receipts), BATCH):
            body = {"receipts": receipts[start : start + BATCH]}
            async with self.http.post(f"{self.url}/v1/verify", json=body) as reply:
                text = await reply.text()
                assert reply.status == 200, text
            found += json.loads(text)["verdicts"]
        return found


def requests(count: int, biased: list[int]) -> list[tuple[str, JsonBody]]:
    """Return so many requests: each way to sample, under one seed after the other."""
    found: list[tuple[str, JsonBody]] = []
    seed = 0
    while len(found) < count:
        seed += 1
        for each in golden_requests(biased):
            if isinstance(each.body.get("prompt"), list) and each.name == "several prompts":
                continue
            found.append((each.path, each.body | {"seed": seed}))
        question = {"role": "user", "content": f"Is it warm in city {seed}?"}
        tools = {"messages": [question], "tools": TOOLS, "tool_choice": "required"}
        found.append(("/v1/chat/completions", tools | {"max_tokens": 40, "seed": seed}))
    return found[:count]


def changed(receipt: ReceiptJson, rng: Random) -> tuple[ReceiptJson, str]:
    """Return a receipt with one token, parameter or digit changed, and a pattern of its place."""
    made = deepcopy(receipt)
    number = rng.randrange(len(made["choices"]))
    choice, path = made["choices"][number], rf"choices\[{number}\]"
    what = rng.choice(["token", "parameter", "digit", "link", "seed", "end", "prompt", "digests"])
    if what == "token" and choice["tokens"]:
        place = rng.randrange(len(choice["tokens"]))
        choice["tokens"][place] ^= 1
        last = place == len(choice["tokens"]) - 1
        return made, rf"{path}\.(tokens\[{place}\]" + (rf"|chain\[{place + 1}\])" if last else ")")
    if what == "link" and choice["tokens"]:
        place = rng.randrange(len(choice["chain"]))
        choice["chain"][place] = _other_digit(choice["chain"][place], rng)
        last = place == len(choice["chain"]) - 1
        return made, rf"{path}\.(chain\[{place}\]" + (rf"|tokens\[{place - 1}\])" if last else ")")
    if what == "parameter":
        made["parameters"].setdefault("sampling", {})["temperature"] = 0.123
        return made, r"parameters\.sampling\.temperature"
    if what == "seed":
        made["seed"] += 1
        return made, "seed"
    if what == "end":
        choice["finish_reason"] = "length" if choice["finish_reason"] == "stop" else "stop"
        return made, rf"{path}\.finish_reason"
    if what == "prompt":
        tokens = made["prompt"]["tokens"]
        tokens[rng.randrange(len(tokens))] ^= 1
        return made, r"prompt\.tokens"
    if what == "digests":
        name = rng.choice(sorted(made["digests"]))
        made["digests"][name] = _other_digit(made["digests"][name], rng)
        return made, rf"digests\.{re.escape(name)}"
    made["digest"] = _other_digit(made["digest"], rng)
    return made, "digest"


def _other_digit(digits: str, rng: Random) -> str:
    place = rng.randrange(len(digits))
    return digits[:place] + ("0" if digits[place] != "0" else "1") + digits[place + 1 :]


def forged(receipt: ReceiptJson, fingerprint: str) -> ReceiptJson:
    """Return a receipt of the same tokens, made anew under another fingerprint."""
    found = msgspec.convert(receipt, Receipt)
    assert isinstance(found.prompt.tokens, tuple)
    texts = [
        ReceiptText(each.index, each.tokens, each.finish_reason, each.stop, each.logprobs)
        for each in found.choices
    ]
    made = receipt_of(found.model, fingerprint, found.prompt.tokens, options_of(found), texts)
    return msgspec.to_builtins(made)


async def main_async(arguments: argparse.Namespace) -> int:
    base = [arguments.model] if arguments.model else []
    base += ["--requests-max", "32"]
    bf16, int4 = [*base, "--dtype", arguments.dtype], [*base, "--dtype", "int4"]
    rng, failures = Random(arguments.seed), 0
    async with server(arguments.isa, *bf16) as client:
        asked = requests(arguments.count, list(range(300, 306)))
        receipts = list(await asyncio.gather(*(client.receipt(*each) for each in asked)))
        # The same server, started again, has no cache and other blocks.
    fingerprint = receipts[0]["fingerprint"]
    async with server("", *int4) as client:
        body = {"prompt": "The history of the sea", "max_tokens": FORGED_MAX, "ignore_eos": True}
        others = await asyncio.gather(
            *(
                client.receipt("/v1/completions", body | {"seed": each, "temperature": 0.8})
                for each in range(FORGED_TEXTS)
            )
        )
    for name, isa in (("after a restart", arguments.isa), ("on another CPU", arguments.other)):
        async with server(isa, *bf16) as client:
            verdicts = await client.verdicts(receipts)
            equal = sum(each["verdict"] == "equal" for each in verdicts)
            print(f"{name} ({isa or 'best'}): {equal} of {len(receipts)} equal", flush=True)
            for request, verdict in zip(asked, verdicts, strict=True):
                if verdict["verdict"] != "equal":
                    failures += 1
                    print(f"  {request[0]} {json.dumps(request[1])[:200]}: {verdict}")
            if name == "after a restart":
                continue
            made = [changed(each, rng) for each in receipts]
            verdicts = await client.verdicts([each for each, _ in made])
            kinds: Counter[str] = Counter(each["verdict"] for each in verdicts)
            named = 0
            for (_, place), verdict in zip(made, verdicts, strict=True):
                is_named = re.fullmatch(place, verdict.get("field", "")) is not None
                named += is_named
                if not is_named or verdict["verdict"] == "equal":
                    failures += 1
                    print(f"  changed at {place}: {verdict}")
            print(f"changed: {kinds['equal']} accepted, {named} of {len(made)} places named")
            verdicts = await client.verdicts([forged(each, fingerprint) for each in others])
            found = [each["tokens"] for each in verdicts if each["verdict"] == "different"]
            failures += len(others) - len(found)
            print(f"int4 as {arguments.dtype}: {len(found)} of {len(others)} found out, "
                  f"after {min(found)} to {max(found)} tokens")  # fmt: skip
    print("failed" if failures else "all as it must be")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--isa", default=os.environ.get("DRAFTWERK_ISA", ""))
    parser.add_argument("--other", default="avx2")
    parser.add_argument("--model", default="")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(main_async(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
