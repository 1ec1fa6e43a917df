"""Many kinds of streams against a running server: what each client was sent, and when."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.support.prompts import SUBJECTS
from draftwerk_tools.loadtest.client.http.sse import sse_events


@dataclass(slots=True)
class Stream:
    """One client."""

    name: str
    kind: str
    """sse, ws or beams; a whole reply comes as the first does."""
    body: dict[str, Any]
    texts: dict[int, str] = field(default_factory=dict[int, str])
    """By choice."""
    ending: str = ""
    arrivals: list[float] = field(default_factory=list[float])
    """When text came, by `perf_counter`."""

    @property
    def pause_s(self) -> float:
        """The longest time between two pieces of text."""
        return max((then - before for before, then in pairwise(self.arrivals)), default=0.0)

    def add(self, text: str, choice: int = 0) -> None:
        if text:
            self.texts[choice] = self.texts.get(choice, "") + text
            self.arrivals.append(perf_counter())


def streams(count: int, tokens: int) -> list[Stream]:
    """Return clients of all kinds: half over SSE, half over WebSocket, half of each greedy.

    The last one is a beam search whose choices all come back.
    """
    found: list[Stream] = []
    for number in range(count - 1):
        question = f"Write a story about {SUBJECTS[number % len(SUBJECTS)]}, number {number}."
        sampling: dict[str, Any] = {"temperature": 0 if number % 4 < 2 else 1, "seed": number}
        if number % 2 == 0:
            messages = [{"role": "user", "content": question}]
            limits = {"max_tokens": tokens, "ignore_eos": True, "stream": True}
            body = {"messages": messages, **sampling, **limits}
            found.append(Stream(f"sse {number}", "sse", body))
        else:
            asked = {"type": "response.create", "input": question, "max_output_tokens": tokens}
            found.append(Stream(f"ws {number}", "ws", {**asked, **sampling, "ignore_eos": True}))
    search = {"prompt": "Once upon a time", "beam_width": 3, "n": 3, "max_tokens": tokens}
    found.append(Stream("beams", "beams", {**search, "stream": True}))
    return found


async def run(http: aiohttp.ClientSession, url: str, stream: Stream) -> None:
    """Read one stream to its end, for its texts and its last event."""
    match stream.kind:
        case "sse":
            await _sse(http, url + "/v1/chat/completions", stream)
        case "beams":
            await _sse(http, url + "/v1/completions", stream)
        case _:
            await _socket(http, url + "/v1/responses", stream)


async def run_all(http: aiohttp.ClientSession, url: str, found: list[Stream]) -> None:
    """Read all streams at once."""
    async with asyncio.TaskGroup() as tasks:
        for stream in found:
            tasks.create_task(run(http, url, stream))


async def _sse(http: aiohttp.ClientSession, url: str, stream: Stream) -> None:
    async with http.post(url, json=stream.body) as response:
        if response.status != 200:
            stream.ending = f"{response.status}: {await response.text()}"
            return
        async for data in events_of(response):
            event = json.loads(data)
            if "error" in event:
                stream.ending = str(event["error"])
            for choice in event.get("choices", ()):
                said = choice.get("delta") or choice.get("message") or {}
                stream.add(choice.get("text") or said.get("content") or "", choice["index"])
                stream.ending = choice.get("finish_reason") or stream.ending


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield what came: the events of a stream, or a whole reply."""
    if response.content_type != "text/event-stream":
        yield await response.read()
        return
    async for event in sse_events(response.content.iter_any()):
        yield event


async def _socket(http: aiohttp.ClientSession, url: str, stream: Stream) -> None:
    async with http.ws_connect(url, max_msg_size=0) as socket:
        await socket.send_json(stream.body)
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                stream.ending = repr(message.data)
                return
            event = json.loads(message.data)
            if event["type"] == "response.output_text.delta":
                stream.add(event["delta"])
            elif event["type"] in ("response.completed", "response.incomplete"):
                stream.ending = event["type"]
                return
            elif event["type"] in ("response.failed", "error"):
                stream.ending = json.dumps(event)
                return
