"""Do replicas keep what one big engine would? `python -m benchmarks.cluster.shared_prefixes`.

Agents on 20 shared prefixes, in sessions that grow: the same requests first to one server with the
memory of all replicas together, then to `draftwerk serve --replicas N`. It prints the cached tokens
of both, and the spread: the busiest replica's computed and generated tokens over the mean. Below
`--cached` of the one server's, above `--spread`, or with a text that differs it ends with 1.
Options after `--` are those of both servers.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import aiohttp

from benchmarks.support.server import draftwerk
from draftwerk.loadtest.server.launcher import Server
from draftwerk.loadtest.server.metrics import MetricsPage, fetch_metrics

PREFIXES = 20
WORDS = (
    *("call", "read", "write", "search", "file", "result", "path", "number", "answer", "the"),
    *("with", "from", "user", "tool", "list", "name", "value", "error", "text", "next"),
)
SNAPSHOT_S = 2.0
"""Replicas report what they have counted once a second."""


@dataclass(frozen=True)
class AgentSession:
    """What one agent sends, but for the answers it gets."""

    prefix: str
    news: tuple[str, ...]
    """Of each turn."""


@dataclass(frozen=True)
class AgentLoad:
    """Sessions on shared prefixes, some of which are used more than others."""

    sessions: int
    seed: int
    prefix_words: tuple[int, int] = (192, 640)

    @cached_property
    def plan(self) -> list[AgentSession]:
        """The sessions, in the order in which clients take them."""
        rng = random.Random(self.seed)
        prefixes = [self._words(rng, *self.prefix_words) for _ in range(PREFIXES)]
        weights = [1 / rank for rank in range(1, PREFIXES + 1)]
        # Each of them at least once.
        used = prefixes + rng.choices(prefixes, weights, k=max(self.sessions - PREFIXES, 0))
        rng.shuffle(used)
        return [
            AgentSession(prefix, tuple(self._words(rng, 16, 64) for _ in range(rng.randint(4, 8))))
            for prefix in used[: self.sessions]
        ]

    @staticmethod
    def _words(rng: random.Random, least: int, most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(least, most))) + "\n"


@dataclass(slots=True)
class LoadResult:
    """What came of one server."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    texts: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """By session and turn."""
    work: Counter[str] = field(default_factory=Counter[str])
    """Tokens computed and generated, by replica."""

    @property
    def spread(self) -> float:
        """The busiest replica's work over the mean."""
        return max(self.work.values()) * len(self.work) / self.work.total()


async def loaded(server: Server, load: AgentLoad, options: argparse.Namespace) -> LoadResult:
    """Run all sessions on one server, so many at once."""
    found, numbers = LoadResult(), iter(range(load.sessions))
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        before = work_of(await fetch_metrics(http, server.url))

        async def client(number: int) -> None:
            rng = random.Random(number)
            for session in numbers:
                said = load.plan[session].prefix
                for turn, news in enumerate(load.plan[session].news):
                    said += news
                    body: dict[str, object] = {
                        "prompt": said,
                        "max_tokens": answer_tokens(session, turn),
                        "seed": session,
                        "ignore_eos": True,
                    }
                    said += await answered(http, server.url, body, found)
                    found.texts[session, turn] = said
                    await asyncio.sleep(rng.uniform(0, options.pause_s))

        await asyncio.gather(*(client(number) for number in range(options.clients)))
        await asyncio.sleep(SNAPSHOT_S)
        found.work = work_of(await fetch_metrics(http, server.url))
    found.work.subtract(before)
    return found


def answer_tokens(session: int, turn: int) -> int:
    """Return how many tokens a turn's answer has: 8 to 24, the same for every server."""
    return random.Random(1000 * session + turn).randint(8, 24)


async def answered(
    http: aiohttp.ClientSession, url: str, body: dict[str, object], found: LoadResult
) -> str:
    """Send one request, and count its prompt; returns the text."""
    async with http.post(url + "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        page = await reply.json()
    usage = page["usage"]
    found.prompt_tokens += usage["prompt_tokens"]
    found.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
    return page["choices"][0]["text"]


def work_of(page: MetricsPage) -> Counter[str]:
    """Return the tokens that each replica has computed and generated."""
    name = "draftwerk_replica_{}_total"
    work = Counter[str]()
    for counter, sign in (
        ("prefix_cache_queries", 1),
        ("prefix_cache_hits", -1),
        ("generation_tokens", 1),
    ):
        for replica, value in page.by_label(name.format(counter), "replica").items():
            work[replica] += sign * int(value)
    return work


async def run(options: argparse.Namespace) -> int:
    """Compare the two; returns the exit code."""
    load = AgentLoad(options.sessions, options.seed)
    memory = f"{options.replicas * options.kv_mib}MiB"
    async with draftwerk(*options.serve, "--kv-memory", memory) as server:
        one = await loaded(server, load, options)
    memory = f"{options.kv_mib}MiB"
    replicas = ("--replicas", str(options.replicas))
    async with draftwerk(*options.serve, "--kv-memory", memory, *replicas) as server:
        many = await loaded(server, load, options)
    share = many.cached_tokens / one.cached_tokens
    differ = sum(one.texts[key] != many.texts[key] for key in one.texts)
    print(f"{len(one.texts)} requests in {load.sessions} sessions, {differ} texts differ")
    for name, found in (("one server", one), (f"{options.replicas} replicas", many)):
        part = found.cached_tokens / found.prompt_tokens
        print(f"{name}: {found.cached_tokens} of {found.prompt_tokens} cached ({part:.1%})")
    print(f"cached tokens: {share:.3f} of one server's (goal: {options.cached:g})")
    print(f"spread: {many.spread:.2f} (goal: {options.spread:g}); {dict(many.work)}")
    return int(share < options.cached or many.spread > options.spread or differ > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--clients", type=int, default=8, help="sessions at once")
    parser.add_argument("--pause-s", type=float, default=0.5, help="between turns, at most")
    parser.add_argument("--kv-mib", type=int, default=128, help="of each replica")
    parser.add_argument("--cached", type=float, default=0.9, help="of the one server's, at least")
    parser.add_argument("--spread", type=float, default=1.3, help="at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("serve", nargs="*", help="after --: options of both servers")
    return asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
