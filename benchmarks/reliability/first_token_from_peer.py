"""The first token of a prompt whose blocks a peer holds, of this checkout and of another one.

    python -m benchmarks.reliability.first_token_from_peer --before CHECKOUT [--prompts 40]

CHECKOUT is of another commit; it needs no set-up of its own. Of both, two servers of the built-in
model run as peers. For each prompt in turn, the first server of either checkout computes its
blocks; once the second one knows of them, it is asked for one token. Medians, and the median of the
differences prompt by prompt; beside them the first token of prompts that no peer knows. Exits with
1 where this checkout is slower by more than `--slower-max-ms`.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import aiohttp

from benchmarks.support.bench import percentile
from draftwerk.machine.host import die_with_parent
from draftwerk_tools.loadtest.server.launcher import Server, free_port, says_ready, serving
from draftwerk_tools.loadtest.server.metrics import fetch_metrics

ROOT = Path(__file__).parents[2]
WORDS = "the sea, the land and all the birds above them "
PAUSE_S = 0.05
"""Behind a request, for its server to end it."""


@dataclass(slots=True)
class PeerPair:
    """Two servers of one checkout: the second fetches blocks of the first."""

    http: aiohttp.ClientSession
    holder: Server
    asker: Server
    from_peer_s: list[float] = field(default_factory=list[float])
    computed_s: list[float] = field(default_factory=list[float])

    async def measure(self, prompt: str) -> None:
        """Take the first token of a prompt that the holder has computed, and of another one."""
        known, hits = [await self.counted(name) for name in ("blocks", "hits_total")]
        await self.first_token(self.holder, prompt)
        while await self.counted("blocks") <= known:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(PAUSE_S)
        self.from_peer_s.append(await self.first_token(self.asker, prompt))
        assert await self.counted("hits_total") > hits, "no block was fetched"
        self.computed_s.append(await self.first_token(self.asker, "Alone: " + prompt))

    async def first_token(self, server: Server, prompt: str) -> float:
        """Return the seconds to the only token of a request."""
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        begun = perf_counter()
        async with self.http.post(server.url + "/v1/completions", json=body) as reply:
            assert reply.status == 200, await reply.text()
            await reply.read()
        seconds = perf_counter() - begun
        await asyncio.sleep(PAUSE_S)
        return seconds

    async def counted(self, name: str) -> float:
        """Return a figure of the asker's second tier."""
        return (await fetch_metrics(self.http, self.asker.url)).total(f"draftwerk_kv_store_{name}")


@asynccontextmanager
async def peers(http: aiohttp.ClientSession, checkout: Path, key: Path) -> AsyncGenerator[PeerPair]:
    """Serve with two servers of a checkout while the block lasts."""
    door = f"127.0.0.1:{free_port()}"
    async with AsyncExitStack() as stack:
        servers: list[Server] = []
        for role in ("--kv-listen", "--kv-peers"):
            port = free_port()
            command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port)]
            command += ["--kv-key", str(key), role, door, "--kv-memory", "512MiB"]
            server = serving(
                command,
                f"http://127.0.0.1:{port}",
                env={"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"},
                ready=says_ready,
                prepare=die_with_parent,
            )
            servers.append(await stack.enter_async_context(server))
        holder, asker = servers
        yield PeerPair(http, holder, asker)


async def run(arguments: argparse.Namespace, folder: Path) -> int:
    """Return whether the goal was missed."""
    (folder / "key").write_bytes(b"a secret of both servers\n")
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        pairs = {
            name: await stack.enter_async_context(peers(http, checkout, folder / "key"))
            for name, checkout in (("before", arguments.before.resolve()), ("now", ROOT))
        }
        for number in range(arguments.prompts + 1):
            turns = [*pairs.values()][:: 1 - 2 * (number % 2)]
            for pair in turns:
                await pair.measure(f"{number} tell me of " + WORDS * arguments.words)
    for name, pair in pairs.items():
        for what, seconds in (("from the peer", pair.from_peer_s), ("computed", pair.computed_s)):
            ms = [1e3 * each for each in seconds[1:]]  # behind the first, all is warm
            print(
                f"{name}, first token {what}: {median(ms):.2f} ms (p50 of {len(ms)}),"
                f" {percentile(ms, 0.95):.2f} ms (p95)"
            )
    both = zip(pairs["now"].from_peer_s[1:], pairs["before"].from_peer_s[1:], strict=True)
    slower_ms = 1e3 * median(now - before for now, before in both)
    print(f"now slower by {slower_ms:.2f} ms (median of the differences)")
    return int(slower_ms > arguments.slower_max_ms)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="the checkout compared with")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--words", type=int, default=40, help="repeats of a prompt's dozen tokens")
    parser.add_argument("--slower-max-ms", type=float, default=2.0)
    with TemporaryDirectory() as folder:
        return asyncio.run(run(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
