"""Clients of a server's texts, of every kind that streams, waits or searches."""

import asyncio
import json
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import aiohttp

KINDS = ("sse", "websocket", "json", "choices", "logprobs", "beams", "chat")


@dataclass(slots=True)
class ServedText:
    """What one request got."""

    kind: str
    texts: dict[int, str] = field(default_factory=dict[int, str])
    times: list[float] = field(default_factory=list[float])
    error: str = ""

    @property
    def pause_s(self) -> float:
        """The longest time without news, of a stream."""
        return max((after - before for before, after in pairwise(self.times)), default=0.0)


@dataclass(slots=True)
class TextClient:
    """Sends the requests of one run."""

    session: aiohttp.ClientSession
    url: str
    tokens: int

    async def answer(self, number: int) -> ServedText:
        """Send the request of this number, and read all of it."""
        kind = KINDS[number % len(KINDS)]
        found = ServedText(kind, times=[perf_counter()])
        try:
            if kind == "websocket":
                await self._socket(number, found)
            else:
                await self._post(number, found)
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
            found.error = f"{type(error).__name__}: {error}"
        return found

    def _body(self, number: int, kind: str) -> tuple[str, dict[str, Any]]:
        words = f"Request {number}. Once upon a time there was a small town by the sea, and"
        body: dict[str, Any] = {"max_tokens": self.tokens, "seed": number, "ignore_eos": True}
        if kind == "chat":
            body |= {"messages": [{"role": "user", "content": words}], "stream": True}
            return "/v1/chat/completions", body
        body |= {"prompt": words, "temperature": 0.8, "stream": kind not in ("json", "beams")}
        if kind == "choices":
            body["n"] = 2
        if kind == "logprobs":
            body["logprobs"] = 2
        if kind == "beams":
            body |= {"beam_width": 3, "temperature": 0, "max_tokens": self.tokens // 4}
            del body["ignore_eos"]
        return "/v1/completions", body

    async def _post(self, number: int, found: ServedText) -> None:
        path, body = self._body(number, found.kind)
        async with self.session.post(self.url + path, json=body) as reply:
            if reply.status != 200:
                found.error = f"{reply.status}: {(await reply.text())[:200]}"
                return
            if not body["stream"]:
                for choice in (await reply.json())["choices"]:
                    found.texts[choice["index"]] = choice["text"]
                return
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    self._chunk(json.loads(line[6:]), found)

    def _chunk(self, chunk: dict[str, Any], found: ServedText) -> None:
        if "error" in chunk:
            found.error = str(chunk["error"])
        found.times.append(perf_counter())
        for choice in chunk.get("choices", ()):
            text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            found.texts[choice["index"]] = found.texts.get(choice["index"], "") + text

    async def _socket(self, number: int, found: ServedText) -> None:
        url = self.url.replace("http", "ws", 1) + "/v1/responses"
        create = {
            "type": "response.create",
            "input": f"Request {number}. Tell me about a small town by the sea.",
            "max_output_tokens": self.tokens,
            "seed": number,
        }
        async with self.session.ws_connect(url) as socket:
            await socket.send_json(create)
            async for message in socket:
                event = json.loads(message.data)
                found.times.append(perf_counter())
                if event["type"] == "response.output_text.delta":
                    found.texts[0] = found.texts.get(0, "") + event["delta"]
                elif event["type"] in ("response.completed", "response.incomplete"):
                    return
                elif event["type"] in ("error", "response.failed"):
                    found.error = str(event)
                    return
            found.error = f"closed with {socket.close_code}"


async def all_answers(client: TextClient, count: int, first: int = 0) -> list[ServedText]:
    """Return what this many requests at once get."""
    return await asyncio.gather(*(client.answer(first + number) for number in range(count)))
