"""Hostile chat templates, by each way in which a server meets one, while it serves another model.

    python -m validation.hostile_templates [--kinds 88] [--at-once 3] [--ways chat doctor start]

chat     The server has a sound model and one for each kind, whose template behaves until it is
         woken. It is loaded on request and answers; woken, by one door after another, it must be
         refused in one line that names the template's file; then it must answer again.
doctor   `draftwerk doctor MODEL` of each kind as it is must say in one line what is wrong.
start    A second server starts over a folder of all kinds as they are, and leaves out each by name.

Meanwhile chats with the sound model must all be answered, and the memory of every process is
watched. Exits with 1 where one of this fails.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp

from draftwerk.machine.host import die_with_parent
from draftwerk.model.text.templates.guarded_template import LIMITS
from draftwerk_tools.loadtest.server.launcher import Server, free_port, says_ready, serving
from tests.support.hostile_templates import HOSTILE
from tests.support.small_tokenizers import byte_level
from validation.hostile_files import TEMPLATE, save_model
from validation.watched_server import MIB, WatchedServer, chat, is_sentence, post

CHILD_MAX = (LIMITS.memory_mib + 256) * MIB
"""Of any process but the server: what a rendering may take, and what it begins with."""
ANSWER_S, START_S = 600.0, 3600.0
FILE = "chat_template.jinja"
WAKE = "Wake up"
ASLEEP = f"{{% if messages[0].content == '{WAKE}' %}}HOSTILE{{% else %}}{TEMPLATE}{{% endif %}}"


def asked(model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what wakes a model, by each door that renders its template."""
    turn = {"role": "user", "content": WAKE}
    common: dict[str, Any] = {"model": model, "messages": [turn]}
    yield "/v1/chat/completions", {**common, "max_tokens": 2}
    yield "/v1/responses", {"model": model, "input": WAKE, "max_output_tokens": 2}
    yield "/v1/messages", {**common, "max_tokens": 2}
    yield "/api/chat", {**common, "stream": False, "options": {"num_predict": 2}}
    yield "/tokenize", common
    yield "/v1/messages/count_tokens", common


@dataclass(slots=True)
class HostileModels:
    """What comes of hostile models."""

    watched: WatchedServer
    directory: Path
    outcomes: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    doors: Iterator[int] = field(default_factory=lambda: cycle(range(6)))

    def see(self, kind: str, way: str, message: str) -> None:
        """Count a refusal; one that is no sentence, or names no file, is a fault."""
        self.outcomes[f"{way}: refused"] += 1
        if not is_sentence(message) or FILE not in message:
            self.faults.append(f"{kind}, {way}: {message!r}")

    async def wake(self, kind: str, name: str) -> None:
        """Chat with a model, wake it, and chat again."""
        http, url = self.watched.http, self.watched.url
        for words in ("Hi", WAKE, "Hi"):
            if words == WAKE:
                path, body = [*asked(name)][next(self.doors)]
                status, message = await post(http, url + path, body)
                self.see(kind, path, message)
            else:
                status, message = await chat(http, url, name, words)
            if (status == 200) != (words == "Hi") or status >= 500:
                self.faults.append(f"{kind}, {words}: {status} {message!r}")
        await post(http, f"{url}/v1/models/unload", {"model": name})

    async def examine(self, kind: str, name: str) -> None:
        """Have the doctor read a model."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "draftwerk", "doctor", str(self.directory / "as-is" / name)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "500"},
        )
        text = (await process.communicate())[0].decode()
        lines = [line for line in text.splitlines() if FILE in line]
        if "Traceback" in text:
            self.faults.append(f"{kind}, doctor: {text[-300:]!r}")
        self.see(kind, "doctor", lines[0] if lines else text)


def kinds(count: int) -> dict[str, str]:
    """Return the kinds by the names of their models."""
    return {f"kind-{number}": kind for number, kind in enumerate(islice(HOSTILE, count))}


def save_all(directory: Path, named: dict[str, str]) -> None:
    """Save each kind twice: asleep, and as it is; and a sound model beside."""
    sound: dict[str, Any] = json.loads(byte_level().to_str())
    save_model(directory / "model", sound)
    for way, form in (("asleep", ASLEEP), ("as-is", "HOSTILE")):
        shutil.copytree(directory / "model", directory / way / "sound")
        for name, kind in named.items():
            folder = directory / way / name
            folder.mkdir()
            for file in (directory / "model").iterdir():
                (folder / file.name).hardlink_to(file)
            (folder / FILE).unlink()
            (folder / FILE).write_text(form.replace("HOSTILE", HOSTILE[kind]), errors="replace")


async def started(stack: AsyncExitStack, directory: Path, way: str) -> tuple[Server, Path]:
    """Start a server of all models in a folder; return it and its log."""
    port, log = free_port(), directory / f"{way}.log"
    words = ["serve", str(directory / way), "--port", str(port), "--spare", "off"]
    command = [sys.executable, "-m", "draftwerk", *words, "--kv-memory", "8MiB"]
    url = f"http://127.0.0.1:{port}"
    begun = perf_counter()
    server = await stack.enter_async_context(
        serving(command, url, log=log, start_s=START_S, ready=says_ready, prepare=die_with_parent)
    )
    print(f"{way}: started after {perf_counter() - begun:.1f} s")
    return server, log


def left_out(log: Path, named: dict[str, str]) -> dict[str, str]:
    """Return what a server's log says of each model that it has left out."""
    found = re.findall(r"(kind-\d+) is left out: (.*)", log.read_text())
    return {name: words for name, words in found if name in named}


async def at_once(count: int, work: Any, named: dict[str, str]) -> None:
    """Do a piece of work for each model, a few at once."""
    rows = iter(named.items())

    async def some() -> None:
        for name, kind in rows:
            await work(kind, name)

    await asyncio.gather(*(some() for _ in range(count)))


async def run(arguments: argparse.Namespace, directory: Path) -> int:
    """Return how much went wrong."""
    named = kinds(arguments.kinds)
    save_all(directory, named)
    timeout = aiohttp.ClientTimeout(ANSWER_S)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        live, log = await started(stack, directory, "asleep")
        assert (await chat(http, live.url, "sound"))[0] == 200
        alone = WatchedServer(http, live.url, live.pid, CHILD_MAX)
        async with alone.watched():
            await asyncio.sleep(arguments.alone_s)
        print("alone:")
        faults = alone.report()
        watched = WatchedServer(http, live.url, live.pid, CHILD_MAX)
        models = HostileModels(watched, directory)
        async with watched.watched():
            if "chat" in arguments.ways:
                for name, words in left_out(log, named).items():
                    models.see(named[name], "left out", words)
                loaded = {n: kind for n, kind in named.items() if n not in left_out(log, named)}
                await at_once(arguments.at_once, models.wake, loaded)
            if "doctor" in arguments.ways:
                await at_once(arguments.at_once, models.examine, named)
            if "start" in arguments.ways:
                async with AsyncExitStack() as second:
                    server, log = await started(second, directory, "as-is")
                    for name, kind in named.items():
                        words = left_out(log, named).get(name)
                        told = words or (await chat(http, server.url, name, "Hi"))[1]
                        models.see(kind, "start" if words else "chat behind a start", told)
        assert (await chat(http, live.url, "sound"))[0] == 200
    for outcome, count in sorted(models.outcomes.items()):
        print(f"{count} x {outcome}")
    print("meanwhile:")
    faults += models.faults + watched.report()
    print(*faults[:40], sep="\n")
    return len(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", type=int, default=len(HOSTILE))
    parser.add_argument("--at-once", type=int, default=3, help="hostile models asked at once")
    parser.add_argument("--alone-s", type=float, default=10.0, help="of chats before, to compare")
    ways = ["chat", "doctor", "start"]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    with TemporaryDirectory() as directory:
        return min(1, asyncio.run(run(parser.parse_args(), Path(directory))))


if __name__ == "__main__":
    sys.exit(main())
