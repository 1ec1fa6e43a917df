"""Same seed, same bytes? Asks any OpenAI-compatible server the same seeded requests again.

    python -m validation.same_bytes NAME --serve "COMMAND with {port}" [--other COMMAND]
        [--model MODEL] [--drafts]

Each request is asked alone, then again alone, in a crowd of all of them, after a prefix hit (its
prompt was just read), with the server's drafts off where it has a field for that, after a restart,
and of another command: the same server on another instruction set. Prints how many texts stay equal
to the first, at temperature 0 and at 0.8 with a seed. It speaks HTTP alone.
"""

import argparse
import asyncio
import shlex
from typing import Any

import aiohttp

from draftwerk_tools.loadtest.server.launcher import free_port, serving

SUBJECTS = (
    "the sea", "a lighthouse", "two brothers", "bread", "the moon", "an old train",
    "a violin", "winter", "a map", "honey", "the tallest tree", "a lost key",
)  # fmt: skip
PREFACE = "You are a careful writer. Write plainly, with short sentences and few adjectives. " * 4
NO_DRAFTS: dict[str, Any] = {"speculation": {"enabled": False}}
Texts = list[str]


class SeededClient:
    """One server, and how it is asked."""

    def __init__(self, http: aiohttp.ClientSession, url: str, model: str, tokens: int) -> None:
        self.http, self.url, self.model, self.tokens = http, url, model, tokens

    async def text(self, number: int, temperature: float, tokens: int = 0, **more: Any) -> str:
        question = f"{PREFACE}Tell me something about {SUBJECTS[number]}."
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens or self.tokens,
            "temperature": temperature,
            "seed": 1000 + number,
            **more,
        }
        if self.model:
            body["model"] = self.model
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as reply:
            found = await reply.json(content_type=None)
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {str(found)[:300]}")
        return found["choices"][0]["message"]["content"]

    async def alone(self, temperature: float, **more: Any) -> Texts:
        numbers = range(len(SUBJECTS))
        return [await self.text(number, temperature, **more) for number in numbers]

    async def crowd(self, temperature: float) -> Texts:
        numbers = range(len(SUBJECTS))
        return [*await asyncio.gather(*(self.text(each, temperature) for each in numbers))]

    async def hit(self, temperature: float) -> Texts:
        """Ask each once its own prompt was read for another text."""
        found: Texts = []
        for number in range(len(SUBJECTS)):
            await self.text(number, 1.0, tokens=2)
            found.append(await self.text(number, temperature))
        return found


async def measured(arguments: argparse.Namespace) -> None:
    """Print a row of the table for each temperature."""
    starts = {"first": arguments.serve, "restart": arguments.serve, "other CPU": arguments.other}
    rows: dict[float, dict[str, Texts]] = {}
    for start, command in starts.items():
        if not command:
            continue
        port = free_port()
        words, url = shlex.split(command.format(port=port)), f"http://127.0.0.1:{port}"
        async with (
            serving(words, url, start_s=arguments.start_s, ready=answering),
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(900)) as http,
        ):
            asker = SeededClient(http, url, arguments.model, arguments.tokens)
            for temperature in (0.0, 0.8):
                if start != "first":
                    rows[temperature][start] = await asker.alone(temperature)
                    continue
                row = rows[temperature] = {"first": await asker.alone(temperature)}
                row["alone"] = await asker.alone(temperature)
                row["crowd"] = await asker.crowd(temperature)
                row["prefix hit"] = await asker.hit(temperature)
                if arguments.drafts:
                    row["drafts off"] = await asker.alone(temperature, **NO_DRAFTS)
    for temperature, row in rows.items():
        cells = [
            equal(row["first"], row[name]) if name in row else "-"
            for name in ("alone", "crowd", "prefix hit", "drafts off", "restart", "other CPU")
        ]
        print(f"| {arguments.name} | {temperature} | {' | '.join(cells)} |")


def equal(first: Texts, second: Texts) -> str:
    """Return how many texts are equal, of how many."""
    return f"{sum(a == b for a, b in zip(first, second, strict=True))}/{len(first)}"


async def answering(http: aiohttp.ClientSession, url: str) -> bool:
    """Whether a server answers at all."""
    async with http.get(f"{url}/v1/models", timeout=aiohttp.ClientTimeout(5)) as reply:
        return reply.status < 500


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--serve", required=True, metavar="COMMAND", help="with {port} in it")
    parser.add_argument("--other", default="", metavar="COMMAND", help="on other instructions")
    parser.add_argument("--model", default="", help="what requests call it, if they must")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--start-s", type=float, default=180.0)
    parser.add_argument("--drafts", action="store_true", help="ask without draftwerk's drafts too")
    asyncio.run(measured(parser.parse_args()))


if __name__ == "__main__":
    main()
