"""Replies cut at random tokens and sent back with their seed: each goes on with the uncut's bytes.

    python -m validation.cut_replies [--count 500] [--crowd 16] [--kills 6] [--seed 1]

A server with drafts answers requests of every protocol: texts with log-probabilities, JSON,
reasoning, calls of tools. Each is answered whole, then cut at a random token, and sent back as the
reply says; what comes must be the rest, streamed or not. They come in a crowd, while the model's
process is killed.
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
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from benchmarks.support.processes import model_process
from draftwerk.loadtest.server.launcher import free_port, says_ready, serving
from tests.support.thinking_model import save_thinking_model
from validation.cut_streams import GATHERED, events_of
from validation.golden_requests import JsonBody

QUESTIONS = (
    "Why is the sky blue?",
    "Describe Köln in a few words.",
    "写一首关于大海的诗。",
    "Answer with as many emoji as you can.",
    "Count from one to thirty.",
)
TOKENS = 64
SCHEMA: JsonBody = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 40},
        "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}, "maxItems": 5},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION: JsonBody = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}


@dataclass
class Said:
    """What a reply says, in any protocol."""

    reasoning: str = ""
    text: str = ""
    calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Names, and arguments in JSON, by id."""
    logprobs: list[float] = field(default_factory=list[float])
    is_cut: bool = False

    def then(self, rest: "Said", repeats_call: bool) -> "Said":
        """Return what both say together."""
        calls = dict(self.calls)
        for call_id, (name, arguments) in rest.calls.items():
            _, before = calls.get(call_id, ("", ""))
            calls[call_id] = (name, arguments if repeats_call else before + arguments)
        return Said(
            self.reasoning + rest.reasoning,
            self.text + rest.text,
            calls,
            self.logprobs + rest.logprobs,
        )

    def differs(self, other: "Said") -> str:
        """Return the first part in which two differ; empty for equal ones."""
        for name in ("reasoning", "text", "logprobs"):
            if getattr(self, name) != getattr(other, name):
                return f"{name}: {getattr(self, name)!r} is not {getattr(other, name)!r}"
        mine, others = [*self.calls.values()], [*other.calls.values()]
        return "" if mine == others else f"calls: {mine} is not {others}"


class Protocol:
    """How one protocol asks, and how its reply is sent back."""

    path = ""
    repeats_call = False
    limit = ("max_tokens",)

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        raise NotImplementedError

    def said(self, reply: JsonBody) -> Said:
        raise NotImplementedError

    def limited(self, body: JsonBody, count: int) -> JsonBody:
        """Return a body with a limit of tokens."""
        *outer, name = self.limit
        if not outer:
            return body | {name: count}
        return body | {outer[0]: body[outer[0]] | {name: count}}

    def sent_back(self, body: JsonBody, reply: JsonBody) -> JsonBody:
        """Return the request that goes on."""
        return body | {"messages": [*body["messages"], self.message(reply)]}

    def message(self, reply: JsonBody) -> JsonBody:
        raise NotImplementedError


class ChatProtocol(Protocol):
    path = "/v1/chat/completions"

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"messages": [{"role": "user", "content": question}], "seed": seed}
        if kind == "json":
            found["response_format"] = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
        if kind == "calls":
            found |= {"tools": [{"type": "function", "function": FUNCTION}]}
            found["tool_choice"] = "required"
        if kind in ("reasoning", "calls"):
            found["thinking_budget"] = 16
        return found | ({"logprobs": True} if kind == "text" else {})

    def said(self, reply: JsonBody) -> Said:
        (choice,) = reply["choices"]
        message = choice["message"]
        calls = message.get("tool_calls") or []
        return Said(
            message.get("reasoning_content") or "",
            message["content"] or "",
            {each["id"]: (*each["function"].values(),) for each in calls},
            [each["logprob"] for each in (choice["logprobs"] or {}).get("content", [])],
            choice["finish_reason"] == "length",
        )

    def message(self, reply: JsonBody) -> JsonBody:
        return reply["choices"][0]["message"]


class MessagesProtocol(Protocol):
    path = "/v1/messages"
    repeats_call = True

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"model": "default", "seed": seed, "messages": []}
        found["messages"] = [{"role": "user", "content": question}]
        if kind == "json":
            found["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        if kind == "calls":
            found["tools"] = [{"name": "weather", "input_schema": SCHEMA}]
            found["tool_choice"] = {"type": "any"}
        if kind in ("reasoning", "calls"):
            found["thinking"] = {"type": "enabled", "budget_tokens": 16}
        return found

    def said(self, reply: JsonBody) -> Said:
        blocks = reply["content"]
        return Said(
            "".join(each["thinking"] for each in blocks if each["type"] == "thinking"),
            "".join(each["text"] for each in blocks if each["type"] == "text"),
            {
                each["id"]: (each["name"], json.dumps(each["input"]))
                for each in blocks
                if "input" in each
            },
            is_cut=reply["stop_reason"] == "max_tokens",
        )

    def message(self, reply: JsonBody) -> JsonBody:
        names = ("role", "content", "token_ids")
        return {name: reply[name] for name in names if name in reply}


class ResponsesProtocol(Protocol):
    path = "/v1/responses"
    limit = ("max_output_tokens",)

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"input": [{"role": "user", "content": question}], "seed": seed}
        if kind == "json":
            found["text"] = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}
        if kind == "calls":
            found["tools"] = [{"type": "function", **FUNCTION}]
            found["tool_choice"] = "required"
        if kind in ("reasoning", "calls"):
            found["thinking_budget"] = 16
        return found

    def said(self, reply: JsonBody) -> Said:
        found = Said(is_cut=reply["status"] == "incomplete")
        for item in reply["output"]:
            if item["type"] == "function_call":
                found.calls[item["call_id"]] = (item["name"], item["arguments"])
                continue
            text = "".join(part["text"] for part in item["content"])
            if item["type"] == "reasoning":
                found.reasoning += text
            else:
                found.text += text
        return found

    def sent_back(self, body: JsonBody, reply: JsonBody) -> JsonBody:
        return body | {"input": [], "previous_response_id": reply["id"]}


class ItemsProtocol(ResponsesProtocol):
    """The same, with the output sent back as items of the input."""

    def sent_back(self, body: JsonBody, reply: JsonBody) -> JsonBody:
        return body | {"input": [*body["input"], *reply["output"]]}


class OllamaProtocol(Protocol):
    path = "/api/chat"
    repeats_call = True
    limit = ("options", "num_predict")

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"model": "default", "stream": False, "options": {"seed": seed}}
        found["messages"] = [{"role": "user", "content": question}]
        if kind == "json":
            found["format"] = SCHEMA
        if kind == "calls":
            found["tools"] = [{"type": "function", "function": FUNCTION}]
        return found | ({"think": "minimal"} if kind == "never" else {})

    def said(self, reply: JsonBody) -> Said:
        message = reply["message"]
        calls = message.get("tool_calls", [])
        return Said(
            message.get("thinking", ""),
            message["content"],
            {
                each["id"]: (each["function"]["name"], json.dumps(each["function"]["arguments"]))
                for each in calls
            },
            is_cut=reply["done_reason"] == "length",
        )

    def message(self, reply: JsonBody) -> JsonBody:
        return reply["message"]


PROTOCOLS: dict[str, Protocol] = {
    "chat": ChatProtocol(),
    "messages": MessagesProtocol(),
    "responses": ResponsesProtocol(),
    "items": ItemsProtocol(),
    "ollama": OllamaProtocol(),
}
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
        """Cut one reply and let it go on; return where it differs from the uncut one."""
        body = protocol.body(kind, question, rng.randrange(2**40))
        whole = await self.post(protocol.path, protocol.limited(body, TOKENS))
        cut_at = rng.randrange(1, TOKENS)
        # Objects that are told bit by bit are none where they are cut.
        streams = not (kind == "calls" and protocol.repeats_call)
        streamed = [streams and rng.random() < 0.5 for _ in range(2)]
        cut = await self.post(protocol.path, protocol.limited(body, cut_at), streamed[0])
        before, wanted = protocol.said(cut), protocol.said(whole)
        if not before.is_cut:
            return before.differs(wanted)
        again = protocol.limited(protocol.sent_back(body, cut), TOKENS - cut_at)
        rest = protocol.said(await self.post(protocol.path, again, streamed[1]))
        return before.then(rest, protocol.repeats_call).differs(wanted)


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
