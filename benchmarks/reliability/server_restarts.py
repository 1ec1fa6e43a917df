"""What a restart of the whole server costs with `--kv-store`.

    python -m benchmarks.reliability.server_restarts

First the time to the first token after a long system prompt: computed, found in the cache, and
found in the store by a new server. Then a session of turns whose history grows, with a restart in
its middle: how many tokens each turn computes, of those that are new in it.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import aiohttp

from benchmarks.support.server import draftwerk

RULE = "Rule {}: answer item {} briefly, and only if it was asked for. "
QUESTION = "Tell me about item {}."
BLOCK = 16
Turns = list[dict[str, str]]


class TimedReply(NamedTuple):
    """One streamed reply."""

    first_ms: float
    prompt: int
    cached: int
    text: str


async def ask(http: aiohttp.ClientSession, url: str, messages: Turns, tokens: int) -> TimedReply:
    """Return a greedy reply, and when its first token came."""
    body = {
        "messages": messages,
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begun, first, text = perf_counter(), 0.0, ""
    usage: dict[str, object] = {}
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            for choice in event["choices"]:
                if content := choice["delta"].get("content"):
                    first = first or perf_counter()
                    text += content
            usage = event.get("usage") or usage
    details = usage["prompt_tokens_details"]
    assert isinstance(details, dict) and isinstance(usage["prompt_tokens"], int)
    return TimedReply(1e3 * (first - begun), usage["prompt_tokens"], details["cached_tokens"], text)


async def first_tokens(
    options: Sequence[str], system: str, repeats: int
) -> dict[str, list[TimedReply]]:
    """Return replies by where the system prompt came from; no two ask the same."""
    found: dict[str, list[TimedReply]] = {"computed": [], "cached": [], "stored": []}
    number = 0
    for server_number in range(repeats + 1):
        async with draftwerk(*options) as server, aiohttp.ClientSession() as http:
            await ask(http, server.url, [{"role": "user", "content": "Hello?"}], 4)
            kind = "stored" if server_number else "computed"
            for _ in range(4):
                number += 1
                messages = [
                    {"role": "system", "content": system},
                    {"role": "user", "content": QUESTION.format(number)},
                ]
                found[kind].append(await ask(http, server.url, messages, 4))
                kind = "cached"
    return found


async def session(options: Sequence[str], system: str, turns: int) -> list[tuple[TimedReply, int]]:
    """Return the replies of a growing conversation, each with the tokens that were new in it."""
    found: list[tuple[TimedReply, int]] = []
    messages: Turns = [{"role": "system", "content": system}]
    before = 0
    for part in (range(turns // 2), range(turns // 2, turns)):
        async with draftwerk(*options) as server, aiohttp.ClientSession() as http:
            for turn in part:
                messages.append({"role": "user", "content": QUESTION.format(turn)})
                answer = await ask(http, server.url, messages, 24)
                messages.append({"role": "assistant", "content": answer.text})
                found.append((answer, answer.prompt - before))
                before = answer.prompt
    return found


def held_bytes(folder: Path) -> int:
    """Return the size of all records."""
    return sum(path.stat().st_size for path in folder.rglob("*.kv"))


async def main(arguments: argparse.Namespace) -> None:
    system = "".join(RULE.format(n, n) for n in range(arguments.rules))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--kv-store", folder, *arguments.serve]
        found = await first_tokens(options, system, arguments.repeats)
        times = {kind: median(each.first_ms for each in answers) for kind, answers in found.items()}
        print(f"first token ms after a system prompt of {found['cached'][0].prompt} tokens:")
        for kind, answers in found.items():
            cached = min(each.cached for each in answers)
            print(f"{kind:>9s} {times[kind]:8.1f}   (least cached: {cached} tokens)")
        print(f"stored / cached: {times['stored'] / times['cached']:.2f}")
        print(f"the store holds {held_bytes(Path(folder)) / 1e6:.0f} MB")
        turns = await session(options, system, arguments.turns)
    late = [
        (number, answer.prompt - answer.cached, new)
        for number, (answer, new) in enumerate(turns)
        if answer.prompt - answer.cached > new + BLOCK
    ]
    print(f"session of {len(turns)} turns, a restart in its middle: computed (new) tokens")
    print(" ".join(f"{answer.prompt - answer.cached} ({new})" for answer, new in turns))
    assert not late, f"turns that computed more than what was new: {late}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=29, help="of the system prompt")
    parser.add_argument("--repeats", type=int, default=3, help="restarts")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("serve", nargs="*", help="more arguments of `draftwerk serve`, behind --")
    asyncio.run(main(parser.parse_args()))
