"""Mutated tokenizers of one model, while the server serves another.

    python -m validation.hostile_files [--tokenizers 500] [--at-once 4] [--seed 64]

One server has a sound model and a few others. The tokenizers of those are changed again and again,
and a chat asks for each, so that its process reads them: each time it must answer, or refuse in one
line. Meanwhile chats with the sound one must all be answered, and the memory of every process is
watched. Exits with 1 where one of this fails. Templates: `python -m validation.hostile_templates`.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from benchmarks.support.server import draftwerk
from draftwerk.model.text.guarded import tokenizer_trial
from draftwerk.model.text.vocabulary import FILE
from tests.support.mutated_tokenizers import mutated
from tests.support.small_tokenizers import byte_level
from tests.support.tiny_models import save_tiny
from validation.watched_server import MIB, WatchedServer, chat, is_sentence

CHILD_MAX = (tokenizer_trial.LIMITS.memory_mib + 256) * MIB
"""Of any process but the server: what a trial may take, and what it begins with."""
ANSWER_S = 300.0
HostileFile = tuple[str, str]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@dataclass(slots=True)
class HostileModel:
    """A model whose tokenizer changes."""

    name: str
    folder: Path
    http: aiohttp.ClientSession
    url: str
    outcomes: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    async def read(self, name: str, text: str) -> None:
        """Have the server read a file, and see what comes of it."""
        before = (self.folder / FILE).read_text()
        (self.folder / FILE).write_text(text)
        try:
            async with asyncio.timeout(ANSWER_S):
                status, message = await chat(self.http, self.url, self.name)
                unload = {"model": self.name}
                async with self.http.post(f"{self.url}/v1/models/unload", json=unload):
                    pass
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            self.faults.append(f"{name}: {type(error).__name__} {error}")
            return
        finally:
            (self.folder / FILE).write_text(before)
        self.outcomes["answered" if status == 200 else f"refused with {status}"] += 1
        if status == 404 or (status != 200 and not is_sentence(message)):
            self.faults.append(f"{name}: {status} {message!r}")

    async def read_all(self, files: Iterator[HostileFile]) -> None:
        """Read the files that no other model has read."""
        for each in files:
            await self.read(*each)


def save_model(folder: Path, sound: dict[str, Any], template: str = TEMPLATE) -> None:
    """Save a tiny model with a tokenizer and a template."""
    save_tiny(folder, "llama", 1, vocab_size=512, max_position_embeddings=2048)
    (folder / FILE).write_text(json.dumps(sound))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text(template, errors="replace")


def hostile_files(arguments: argparse.Namespace, sound: dict[str, Any]) -> Iterator[HostileFile]:
    """Yield each one's name and text."""
    rng = random.Random(arguments.seed)
    for number in range(arguments.tokenizers):
        yield f"tokenizer {number}", json.dumps(mutated(sound, rng))


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
    async with (
        draftwerk(*words) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_S)) as http,
    ):
        for name in ("sound", *names):
            answer = await chat(http, server.url, name)
            assert answer[0] == 200, answer
        watched = WatchedServer(http, server.url, server.pid, CHILD_MAX)
        models = [HostileModel(name, directory / name, http, server.url) for name in names]
        files = hostile_files(arguments, sound)
        async with watched.watched():
            await asyncio.gather(*(model.read_all(files) for model in models))
        for name in names:
            assert (await chat(http, server.url, name))[0] == 200, "sound files are read again"
    outcomes = sum((model.outcomes for model in models), Counter[str]())
    for outcome, count in sorted(outcomes.items()):
        print(f"{count} x {outcome}")
    faults = [fault for model in models for fault in model.faults] + watched.report()
    print(*faults[:40], sep="\n")
    return len(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokenizers", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=4, help="models whose files change")
    parser.add_argument("--seed", type=int, default=64)
    with TemporaryDirectory() as directory:
        return min(1, asyncio.run(run(parser.parse_args(), Path(directory))))


if __name__ == "__main__":
    sys.exit(main())
