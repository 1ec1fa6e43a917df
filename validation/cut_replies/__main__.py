"""Replies cut at random tokens and sent back with their seed: each goes on with the uncut's bytes.

    python -m validation.cut_replies [--count 500] [--crowd 16] [--kills 6] [--seed 1]

A server with drafts answers requests of every protocol: texts with log-probabilities, JSON,
reasoning, calls of tools. Each is answered whole, then cut at a random token or at two, and sent
back each time as the reply says; what comes must be the rest, streamed or not. They come in a
crowd, while the model's process is killed.
Two models: the default one, and a tiny one with random weights that reasons and calls tools.
Exits with 1 if one differs.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp

from benchmarks.support.processes import model_process
from draftwerk_tools.loadtest.server.launcher import free_port, says_ready, serving
from tests.support.thinking_model import save_thinking_model
from validation.cut_replies.gathered_streams import GATHERED, events_of
from validation.cut_replies.protocols import PROTOCOLS, Protocol, Said
from validation.golden_requests import JsonBody

QUESTIONS = (
    "Why is the sky blue?",
    "Describe Köln in a few words.",
    "写一首关于大海的诗。",
    "Answer with as many emoji as you can.",
    "Count from one to thirty.",
)
TOKENS = 64
KINDS = {"": ("text", "text", "json"), "thinking": ("reasoning", "calls", "text", "json")}
"""By the model: the default one, or the tiny one."""


@dataclass
class CutClient:
    http: aiohttp.ClientSession
    url: str
    name: str
    """What the served model is called."""
    pid: int

    async def post(self, path: str, body: JsonBody, streamed: bool = False) -> JsonBody:
        named = body | {"model": self.name, "stream": streamed}
        async with self.http.post(self.url + path, json=named) as reply:
            text = await reply.text()
            assert reply.status == 200, f"{path} {json.dumps(named)[:1000]}: {text[:500]}"
        return GATHERED[path](events_of(text)) if streamed else json.loads(text)

    async def difference(self, protocol: Protocol, kind: str, question: str, rng: Random) -> str:
        """Cut a reply, once or twice, and let it go on; return where it differs from the uncut."""
        body = protocol.body(kind, question, rng.randrange(2**40))
        whole = await self.post(protocol.path, protocol.limited(body, TOKENS))
        # Objects that are told bit by bit are none where they are cut.
        streams = not (kind == "calls" and protocol.repeats_call)
        told, begin = Said(is_cut=True), 0
        for end in (*sorted(rng.sample(range(1, TOKENS), rng.choice((1, 1, 2)))), TOKENS):
            streamed = streams and rng.random() < 0.5
            part = await self.post(protocol.path, protocol.limited(body, end - begin), streamed)
            told = told.then(protocol.said(part), protocol.repeats_call)
            if not told.is_cut:
                break
            body, begin = protocol.sent_back(body, part), end
        return told.differs(protocol.said(whole))


@asynccontextmanager
async def server(model: Sequence[str]) -> AsyncGenerator[CutClient]:
    """Serve a model with drafts."""
    port = free_port()
    command = [sys.executable, "-m", "draftwerk", "serve", *model, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--requests-max", "32"]
    url = f"http://127.0.0.1:{port}"
    timeout = aiohttp.ClientTimeout(total=None, sock_read=600)
    async with (
        serving(command, url, ready=says_ready, start_s=600) as process,
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        async with http.get(url + "/v1/models") as reply:
            name = (await reply.json())["data"][0]["id"]
        yield CutClient(http, url, name, process.pid)


async def kill(client: CutClient, count: int, over: asyncio.Event) -> int:
    """Kill the process of the target so many times, a few seconds apart."""
    killed = 0
    while killed < count and not over.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), 4.0)
        if not over.is_set() and (pid := model_process(client.pid, "target")):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


async def compare(model: str, directory: str, arguments: argparse.Namespace, count: int) -> int:
    """Compare so many replies of one model; return how many differ."""
    counts, wrong = Counter[str](), 0
    turns = asyncio.Semaphore(arguments.crowd)
    async with server([directory] if directory else []) as client:

        async def one(number: int) -> None:
            nonlocal wrong
            own = Random(f"{arguments.seed} {model} {number}")
            name = own.choice([*PROTOCOLS])
            kind = own.choice(KINDS[model])
            async with turns:
                found = await client.difference(PROTOCOLS[name], kind, own.choice(QUESTIONS), own)
            counts[f"{name} {kind}"] += 1
            if found:
                wrong += 1
                print(f"{model or 'default'} {name} {kind} ({number}): {found[:600]}", flush=True)

        over = asyncio.Event()
        killing = asyncio.create_task(kill(client, arguments.kills, over))
        await asyncio.gather(*(one(number) for number in range(count)))
        over.set()
        killed = await killing
    listed = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
    print(f"{model or 'default'}: {count - wrong} of {count} equal, {killed} kills ({listed})")
    return wrong


async def main_async(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as directory:
        save_thinking_model(Path(directory))
        half = arguments.count // 2
        wrong = await compare("thinking", directory, arguments, arguments.count - half)
        wrong += await compare("", "", arguments, half)
    return 1 if wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="replies")
    parser.add_argument("--crowd", type=int, default=16, help="requests at once")
    parser.add_argument("--kills", type=int, default=6, help="kills of each model's process")
    parser.add_argument("--seed", type=int, default=1)
    sys.exit(asyncio.run(main_async(parser.parse_args())))


if __name__ == "__main__":
    main()
