"""A server among busy programs: is a process replaced without need, and does a request fail?

    python -m benchmarks.reliability.busy --minutes 15 [--loops 70]

So many loops take the cores while clients send requests of all kinds over every protocol. A
request that fails is an error, and so is a process that is another one afterwards: it was slow, and
not dead. Then the loops end, each kind of process is killed under 32 streams, and their texts are
compared with those of undisturbed ones; a process that is not back `--healed-s` later is an error.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.reliability import kills
from benchmarks.reliability.grammar_chaos import CHECKER
from benchmarks.support.prompts import SUBJECTS, WORDS
from benchmarks.support.streams import run, streams
from draftwerk.machine.holders import process_role
from draftwerk.machine.host import PROC, die_with_parent, family
from draftwerk_tools.loadtest.server.metrics import fetch_metrics

LOOP = (sys.executable, "-c", "while True: pass")
SAMPLE_S = 5.0
KILLED = ("target", "spare", "fork_server", kills.GRAMMAR)
CHECKERS = 2
COUNTERS = ("draftwerk_actor_restarts_total", "draftwerk_device_recoveries_total")
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@contextmanager
def busy_loops(number: int) -> Generator[None]:
    """Keep the cores busy while the block lasts."""
    loops = [subprocess.Popen(LOOP, preexec_fn=die_with_parent) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def processes(server: int) -> dict[str, list[int]]:
    """Return the ids of a server's processes by what they are for."""
    found: dict[str, list[int]] = defaultdict(list)
    for descendant in family(server):
        folder = PROC / str(descendant)
        with suppress(OSError):  # it has gone
            is_checker = CHECKER in (folder / "cmdline").read_bytes()
            if role := kills.GRAMMAR if is_checker else process_role(folder):
                found[role].append(descendant)
    return {role: sorted(ids) for role, ids in found.items()}


def bodies(number: int, tokens: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a request of each kind that is one POST: its path and body."""
    question = f"Tell me about {SUBJECTS[number % len(SUBJECTS)]}, number {number}."
    messages = [{"role": "user", "content": question}]
    chat = {"messages": messages, "max_tokens": tokens, "seed": number}
    regex = {"type": "regex", "pattern": f"a{number}b+"}
    schema = {"type": "json_schema", "json_schema": {"name": f"a{number}", "schema": SCHEMA}}
    tool = {"type": "function", "function": {"name": f"f{number}", "parameters": SCHEMA}}
    forced = {"tools": [tool], "tool_choice": "required"}
    long = " ".join(WORDS[(number + 7 * place) % len(WORDS)] for place in range(600))
    return {
        "whole, two choices": ("/v1/chat/completions", {**chat, "n": 2, "logprobs": True}),
        "greedy stream": ("/v1/chat/completions", {**chat, "stream": True, "temperature": 0}),
        "regex": ("/v1/chat/completions", {**chat, "response_format": regex}),
        "schema": ("/v1/chat/completions", {**chat, "response_format": schema}),
        "tool": ("/v1/chat/completions", {**chat, **forced}),
        "long prompt": ("/v1/completions", {"prompt": long, "max_tokens": 2}),
        "responses": ("/v1/responses", {"input": question, "max_output_tokens": tokens}),
        "messages": ("/v1/messages", {"messages": messages, "max_tokens": tokens, "model": "any"}),
        "ollama": ("/api/chat", {"messages": messages, "options": {"num_predict": tokens}}),
        "vector": ("/v1/embeddings", {"input": question}),
    }


@dataclass(slots=True)
class BusyServer:
    """A server, and what clients and its processes came to."""

    http: aiohttp.ClientSession
    url: str
    pid: int
    model: str
    tokens: int
    done: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])
    seen: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set[int]))
    load: float = 0.0

    async def client(self, numbers: Iterator[int], until: float) -> None:
        """Send one request after the other, of each kind in turn."""
        while perf_counter() < until:
            number = next(numbers)
            kinds = bodies(number, self.tokens)
            names = [*kinds, "socket", "beams", "gone"]
            name, begun = names[number % len(names)], perf_counter()
            try:
                problem = await self._ask(name, kinds.get(name), number)
            except aiohttp.ClientError as error:
                problem = repr(error)
            self.seconds.append(perf_counter() - begun)
            self.done[name] += 1
            if problem:
                self.failures.append(f"{name}: {problem}")

    async def _ask(self, name: str, asked: tuple[str, dict[str, Any]] | None, number: int) -> str:
        """Return what went wrong; empty if nothing."""
        if name == "gone":
            return await self._leave(number)
        if asked is None:
            kind = {"socket": "ws", "beams": "beams"}[name]
            stream = next(one for one in streams(3, self.tokens) if one.kind == kind)
            await run(self.http, self.url, stream)
            return "" if stream.texts else f"no text: {stream.ending}"
        path, body = asked
        body = {
            "model": self.model,
            **{key: value for key, value in body.items() if key != "model"},
        }
        async with self.http.post(self.url + path, json=body) as response:
            said = await response.text()
            is_error = response.status != 200 or '{"error"' in said or "event: error" in said
            return f"{response.status} {said[-300:]}" if is_error else ""

    async def _leave(self, number: int) -> str:
        """Send a request, and go when its text begins."""
        path, body = bodies(number, 10 * self.tokens)["greedy stream"]
        async with self.http.post(self.url + path, json=body) as response:
            await response.content.readany()
            return "" if response.status == 200 else str(response.status)

    async def watch(self, until: float) -> None:
        """Note every process that is there, and how busy the machine is."""
        while perf_counter() < until:
            for role, ids in processes(self.pid).items():
                self.seen[role].update(ids)
            self.load = max(self.load, os.getloadavg()[0])
            await asyncio.sleep(SAMPLE_S)

    async def restarts(self) -> dict[str, float]:
        page = await fetch_metrics(self.http, self.url)
        return {name: page.total(name) for name in COUNTERS}

    async def warm_up(self) -> None:
        """Ask for a grammar, and wait until its second checker and the spare are there."""
        problem = await self._ask("regex", bodies(-1, 4)["regex"], -1)
        assert not problem, problem
        while len(processes(self.pid).get(kills.GRAMMAR, ())) < CHECKERS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        while await self._up("spare") == 0:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.1)

    async def _up(self, role: str) -> float:
        page = await fetch_metrics(self.http, self.url)
        return page.by_label("draftwerk_device_up", "device").get(role, 1)

    async def among_loops(self, given: argparse.Namespace) -> None:
        """Serve among busy loops, and print what came of it. Raises AssertionError."""
        numbers = count()
        await self.warm_up()
        before, counted = processes(self.pid), await self.restarts()
        with busy_loops(given.loops):
            until = perf_counter() + 60 * given.minutes
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.watch(until))
                for _ in range(given.clients):
                    tasks.create_task(self.client(numbers, until))
        after = processes(self.pid)
        print(f"{given.loops} loops, load {self.load:.0f}: {self.done.total()} requests,", end=" ")
        print(f"{len(self.failures)} failed, {median(self.seconds):.1f} s each", end=" ")
        print(f"(median; {max(self.seconds):.1f} at most)")
        print(*(f"{number:6d} {name}" for name, number in sorted(self.done.items())), sep="\n")
        assert not self.failures, self.failures
        for role, ids in before.items():
            assert set(ids) == self.seen[role] == set(after.get(role, ())), f"{role} was replaced"
        assert await self.restarts() == counted
        print("no process was replaced:", *(f"{role} {len(ids)}" for role, ids in before.items()))


async def killed(server: kills.KillServer, given: argparse.Namespace) -> None:
    """Kill each kind of process under streams. Raises AssertionError unless texts are equal."""
    words = ["--streams", str(given.streams), "--count", str(given.kills)]
    plain = await server.run(kills.parser().parse_args(words), 0)
    page = await fetch_metrics(server.http, server.url)
    there = {kills.GRAMMAR, *page.by_label("draftwerk_device_process", "device")}
    for role in (role for role in KILLED if role in there):
        arguments = kills.parser().parse_args([*words, "--process", role])
        disturbed = await server.run(arguments, arguments.count)
        kills.compare(plain, disturbed)
        back = [each.ready_s for each in disturbed.recoveries]
        print(f"{role} killed {len(back)} times, all texts equal; another is there after", end=" ")
        print(f"{median(back):.2f} s ({max(back):.2f} at most)", end="")
        text = [each.token_s for each in disturbed.recoveries]
        has_pause = role == "target"
        print(f", text again after {median(text):.2f} s ({max(text):.2f})" if has_pause else "")
        assert max(back) <= given.healed_s, f"{role} was away for {max(back):.1f} s"


async def experiment(given: argparse.Namespace) -> None:
    serve = ["--queue-wait-s", "3600", *given.serve]
    async with kills.started(argparse.Namespace(serve=serve, model=given.model)) as server:
        async with server.http.get(server.url + "/v1/models") as reply:
            model = (await reply.json())["data"][0]["id"]
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            busy = BusyServer(http, server.url, server.pid, model, given.tokens)
            await busy.among_loops(given)
            await killed(server, given)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--minutes", type=float, default=15)
    made.add_argument("--loops", type=int, default=70)
    made.add_argument("--clients", type=int, default=8)
    made.add_argument("--tokens", type=int, default=16, help="of an answer")
    made.add_argument("--kills", type=int, default=3, help="of each kind of process")
    made.add_argument("--streams", type=int, default=32, help="beside them")
    made.add_argument("--healed-s", type=float, default=10, help="until there is another process")
    made.add_argument("--model", default="", help="a model to serve; the default one without it")
    made.add_argument("serve", nargs="*", help="more arguments of `draftwerk serve`, behind --")
    asyncio.run(experiment(made.parse_args()))


if __name__ == "__main__":
    main()
