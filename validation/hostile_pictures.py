"""Hostile pictures, sent to a live server by every door: `python -m validation.hostile_pictures`.

Each must be refused in one line that names its field, within `--seconds`; meanwhile chats must all
be answered, and at the end every process must have about the memory that it had after the first
round of them. Exits with 1 where one of this fails.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import aiohttp

from draftwerk.machine.host import die_with_parent
from draftwerk_tools.loadtest.server.launcher import free_port, says_ready, serving
from tests.support.hostile_pictures import HostilePicture, requests
from tests.support.tiny_pictures import save_pictured
from validation.watched_server import MIB, WatchedServer, chat, descendants, is_sentence, resident

CHILD_MAX = 1536 * MIB
"""Of any process: a reader of pictures, with torch and Transformers, and the most of a picture."""
GROWTH_MAX = 64 * MIB
START_S = 600.0


async def refused(
    http: aiohttp.ClientSession, url: str, sent: HostilePicture, seconds: float
) -> tuple[float, str]:
    """Send a picture; return the seconds, and what is amiss."""
    begun = perf_counter()
    async with http.post(url + sent.path, json=sent.body) as reply:
        text = await reply.text()
    taken_s = perf_counter() - begun
    amiss = [
        f"{reply.status}" * (reply.status != 400),
        "no sentence" * (not is_sentence(text)),
        f"not by {sent.field}" * (f"`{sent.field}" not in text),
        f"{taken_s:.2f} s" * (taken_s > seconds),
    ]
    words = ", ".join(filter(None, amiss))
    return taken_s, f"{sent.name}: {words}: {text[:200]}" if words else ""


def memory() -> dict[int, int]:
    """Return the resident memory of every process that this one has begun."""
    return {pid: resident(pid) for pid in descendants(os.getpid())}


async def run(arguments: argparse.Namespace, directory: Path) -> int:
    """Return how much went wrong."""
    save_pictured("llava", directory)
    port, sent = free_port(), [*requests()]
    words = ["serve", str(directory), "--port", str(port), "--spare", "off", "--dtype", "fp32"]
    command = [sys.executable, "-m", "draftwerk", *words, "--kv-memory", "8MiB"]
    command += ["--served-model-name", "sound"]
    url = f"http://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        server = await stack.enter_async_context(
            serving(
                command,
                url,
                log=directory / "log",
                start_s=START_S,
                ready=says_ready,
                prepare=die_with_parent,
            )
        )
        assert (await chat(http, url, "sound"))[0] == 200
        watched = WatchedServer(http, url, server.pid, CHILD_MAX)
        times, faults, before = list[float](), list[str](), dict[int, int]()
        async with watched.watched():
            for number in range(arguments.rounds):
                found = [await refused(http, url, each, arguments.seconds) for each in sent]
                times += [taken_s for taken_s, _ in found]
                faults += [words for _, words in found if words]
                before = before or memory()
                print(f"round {number + 1}: {sum(memory().values()) // MIB} MiB in all")
        after = memory()
    grown = {pid: after.get(pid, 0) - bytes_ for pid, bytes_ in before.items()}
    faults += [f"a process was replaced: {pid}" for pid in before if pid not in after]
    faults += [
        f"process {pid} has {more // MIB} MiB more"
        for pid, more in grown.items()
        if more > GROWTH_MAX
    ]
    print(f"{len(sent)} pictures, {arguments.rounds} times: {median(times):.3f} s (p50), ", end="")
    print(f"{max(times):.3f} s at most")
    faults += watched.report()
    print(*faults, sep="\n")
    return len(faults)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="in which each is refused")
    with TemporaryDirectory() as folder:
        sys.exit(min(1, asyncio.run(run(parser.parse_args(argv), Path(folder)))))


if __name__ == "__main__":
    main()
