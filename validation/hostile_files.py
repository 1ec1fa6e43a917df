"""Mutated tokenizers and hostile templates of one model, while the server serves another.

    python -m validation.hostile_files [--tokenizers 500] [--templates 60] [--at-once 4] [--seed 64]

One server has a sound model and a few others. The files of those are changed again and again, and a
chat asks for each, so that the server reads them: each time it must answer, or refuse in one line.
Meanwhile chats with the sound one must all be answered, and the memory of every process is watched.
Exits with 1 where one of this fails.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.support.bench import percentile
from benchmarks.support.server import draftwerk
from draftwerk.model.text.guarded import tokenizer_trial
from draftwerk.model.text.vocabulary import FILE
from tests.support.hostile_templates import HOSTILE
from tests.support.mutated_tokenizers import mutated
from tests.support.small_tokenizers import byte_level
from tests.support.tiny_models import save_tiny

MIB = 2**20
WATCH_S = 0.05
SERVER_GROWTH_MAX = 256 * MIB
"""Of the server itself, above what it takes once it has served a request."""
CHILD_MAX = (tokenizer_trial.LIMITS.memory_mib + 256) * MIB
"""Of any other process: what a trial may take, and what it begins with."""
ANSWER_S = 300.0
HostileFile = tuple[str, str, str]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@dataclass(slots=True)
class SeenProcesses:
    """What was seen of the server meanwhile."""

    server: int = 0
    """The most memory that it had."""
    child: int = 0
    """The most that one of its processes had."""
    others_s: list[float] = field(default_factory=list[float])
    """Of chats with the other model."""
    failed: Counter[int] = field(default_factory=Counter[int])
    """Of those, what was no answer."""

    async def look(self, pid: int) -> None:
        """Look at all processes again and again, until cancelled."""
        while True:
            self.server = max(self.server, resident(pid))
            self.child = max(self.child, *map(resident, descendants(pid)), 0)
            await asyncio.sleep(WATCH_S)

    async def ask(self, http: aiohttp.ClientSession, url: str) -> None:
        """Chat with the other model again and again, until cancelled."""
        while True:
            begun = perf_counter()
            status, _ = await chat(http, url, "sound")
            self.others_s.append(perf_counter() - begun)
            if status != 200:
                self.failed[status] += 1
            await asyncio.sleep(WATCH_S)


def resident(pid: int) -> int:
    """Return a process's resident memory; 0 where it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * 4096


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has begun, and theirs."""
    found: list[int] = []
    for task in islice(Path(f"/proc/{pid}/task").glob("*/children"), 64):
        try:
            own = [*map(int, task.read_text().split())]
        except OSError:
            continue
        for child in own:
            found += [child, *descendants(child)]
    return found


async def chat(http: aiohttp.ClientSession, url: str, model: str) -> tuple[int, str]:
    """Return the status of a chat, and what its error says."""
    body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": "Hi there"}]}
    async with http.post(f"{url}/v1/chat/completions", json=body) as reply:
        answer = await reply.json()
    return reply.status, answer.get("error", {}).get("message", "")


@dataclass(slots=True)
class HostileModel:
    """A model whose files change."""

    name: str
    folder: Path
    http: aiohttp.ClientSession
    url: str
    outcomes: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    async def read(self, name: str, file: str, text: str) -> None:
        """Have the server read a file, and see what comes of it."""
        before = (self.folder / file).read_text()
        (self.folder / file).write_text(text, errors="replace")
        try:
            async with asyncio.timeout(ANSWER_S):
                status, message = await chat(self.http, self.url, self.name)
                async with self.http.post(
                    f"{self.url}/v1/models/unload", json={"model": self.name}
                ):
                    pass
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            self.faults.append(f"{name}: {type(error).__name__} {error}")
            return
        finally:
            (self.folder / file).write_text(before)
        self.outcomes[f"{file}: {'answered' if status == 200 else f'refused with {status}'}"] += 1
        is_told = message and "\n" not in message and "Traceback" not in message
        if status == 404 or (status != 200 and not is_told):
            self.faults.append(f"{name}: {status} {message!r}")

    async def read_all(self, files: Iterator[HostileFile]) -> None:
        """Read the files that no other model has read."""
        for each in files:
            await self.read(*each)


def save_model(folder: Path, sound: dict[str, Any]) -> None:
    """Save a tiny model with a tokenizer and a template."""
    save_tiny(folder, "llama", 1, vocab_size=512, max_position_embeddings=2048)
    (folder / FILE).write_text(json.dumps(sound))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def hostile_files(arguments: argparse.Namespace, sound: dict[str, Any]) -> Iterator[HostileFile]:
    """Yield each one's name, file and text."""
    rng = random.Random(arguments.seed)
    for number in range(arguments.tokenizers):
        yield f"tokenizer {number}", FILE, json.dumps(mutated(sound, rng))
    for name, source in islice(HOSTILE.items(), arguments.templates):
        yield f"template {name}", "chat_template.jinja", source


async def run(arguments: argparse.Namespace, directory: Path) -> int:
    """Return how much went wrong."""
    sound: dict[str, Any] = json.loads(byte_level().to_str())
    names = [f"hostile-{number}" for number in range(arguments.at_once)]
    rows = '[[model]]\nname = "sound"\nkv_memory = "32MiB"\n'
    for name in names:
        save_model(directory / name, sound)
        rows += f'[[model]]\nname = "{name}"\npath = "{directory / name}"\nkv_memory = "8MiB"\n'
    (directory / "models.toml").write_text(rows)
    words = ["--models", str(directory / "models.toml"), "--spare", "off"]
    watch, models = SeenProcesses(), list[HostileModel]()
    async with (
        draftwerk(*words) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_S)) as http,
    ):
        for name in ("sound", *names):
            answer = await chat(http, server.url, name)
            assert answer[0] == 200, answer
        before = resident(server.pid)
        looking = asyncio.create_task(watch.look(server.pid))
        asking = asyncio.create_task(watch.ask(http, server.url))
        models += [HostileModel(name, directory / name, http, server.url) for name in names]
        files = hostile_files(arguments, sound)
        await asyncio.gather(*(model.read_all(files) for model in models))
        for task in (looking, asking):
            task.cancel()
        await asyncio.gather(looking, asking, return_exceptions=True)
        for name in names:
            assert (await chat(http, server.url, name))[0] == 200, "sound files are read again"
    outcomes = sum((model.outcomes for model in models), Counter[str]())
    for outcome, count in sorted(outcomes.items()):
        print(f"{count} x {outcome}")
    print(
        f"chats with the sound model: {len(watch.others_s)}, {watch.failed.total()} failed,"
        f" {median(watch.others_s):.3f} s (p50), {percentile(watch.others_s, 0.99):.3f} s (p99)"
    )
    print(
        f"memory: server {before // MIB} MiB, {watch.server // MIB} at most;"
        f" another process {watch.child // MIB} MiB at most"
    )
    faults = [fault for model in models for fault in model.faults]
    faults += [f"{count} chats with the sound model: {s}" for s, count in watch.failed.items()]
    if watch.server - before > SERVER_GROWTH_MAX:
        faults.append("the server grew")
    if watch.child > CHILD_MAX:
        faults.append("a process was above its limit")
    print(*faults[:40], sep="\n")
    return len(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizers", type=int, default=500)
    parser.add_argument("--templates", type=int, default=len(HOSTILE))
    parser.add_argument("--at-once", type=int, default=4, help="models whose files change")
    parser.add_argument("--seed", type=int, default=64)
    with TemporaryDirectory() as directory:
        return min(1, asyncio.run(run(parser.parse_args(), Path(directory))))


if __name__ == "__main__":
    sys.exit(main())
