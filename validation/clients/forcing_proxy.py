"""A proxy that has a model of random weights call an agent's tools, and then end.

In a conversation the first requests with tools are made to demand one call each; once all results
have been sent back, none. All else passes as it is. What the server answered is noted.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from validation.clients.demanded_calls import ForcedCall, RequestJson, forced, result_ids

HOP = {"host", "content-length", "transfer-encoding", "connection", "content-encoding", "upgrade"}
"""Headers of one connection."""
SOCKET_HEADERS = "sec-websocket"
NOTED_HEADERS = ("x-tools-left-out", "x-tools-loosely-followed")
ASKING = ("/responses", "/chat/completions", "/messages")
BODY_MAX = 64 * 2**20
ERROR_MAX = 120
FAILED = ('"type":"error"', '"type":"response.failed"')


@dataclass(slots=True)
class ProxyNotes:
    """What passed in one agent's run."""

    turns: int = 0
    """Requests for an answer that were served."""
    results: set[str] = field(default_factory=set[str])
    """Ids of the calls whose results were sent back."""
    others: dict[str, None] = field(default_factory=dict[str, None])
    """What was refused, failed or left out, in words."""


@dataclass(slots=True)
class ForcingProxy:
    """One agent's way to a server."""

    server_url: str
    calls: Sequence[ForcedCall]
    http: aiohttp.ClientSession
    sockets: bool
    """Whether WebSockets are let through."""
    notes: ProxyNotes = field(default_factory=ProxyNotes)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and its answer back as it comes."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            return await self._socket(request) if self.sockets else web.Response(status=426)
        raw = await request.read()
        is_asking = request.method == "POST" and request.path.endswith(ASKING)
        if is_asking:
            raw = json.dumps(self._forced(request.path, json.loads(raw))).encode()
        url, headers = self.server_url + request.path_qs, passed(request.headers)
        async with self.http.request(request.method, url, data=raw, headers=headers) as reply:
            answer = web.StreamResponse(status=reply.status, headers=passed(reply.headers))
            with suppress(ConnectionResetError):  # some leave at the last event
                await answer.prepare(request)
                async for chunk in reply.content.iter_any():
                    self._note_part(request.path, reply.status, chunk.decode(errors="replace"))
                    await answer.write(chunk)
                await answer.write_eof()
        self.notes.turns += is_asking and reply.status == 200
        for name in NOTED_HEADERS:
            if found := reply.headers.get(name):
                self.notes.others[f"{name}: {found}"] = None
        return answer

    def _forced(self, path: str, body: RequestJson) -> RequestJson:
        self.notes.results |= set(result_ids(body))
        try:
            return forced(path, body, self.calls, len(self.notes.results))
        except LookupError as error:
            self.notes.others[str(error)] = None
            return body

    def _note_part(self, path: str, status: int, text: str) -> None:
        if status >= 400 or any(each in text for each in FAILED):
            self.notes.others[f"{path}: {status} {error_words(text)}"] = None

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        """Pass a socket's frames on, both ways."""
        near = web.WebSocketResponse(max_msg_size=BODY_MAX)
        url, headers = self.server_url + request.path_qs, passed(request.headers)
        async with self.http.ws_connect(url, headers=headers, max_msg_size=BODY_MAX) as far:
            await near.prepare(request)
            events = asyncio.create_task(self._events(far, near))
            async for frame in near:
                body: RequestJson = json.loads(frame.data)
                if body.get("type") == "response.create" and body.get("generate") is not False:
                    body = self._forced(request.path, body)
                await far.send_str(json.dumps(body))
            events.cancel()
        return near

    async def _events(
        self, far: aiohttp.ClientWebSocketResponse, near: web.WebSocketResponse
    ) -> None:
        async for frame in far:
            self._note_part("socket", 0, frame.data)
            self.notes.turns += '"type":"response.completed"' in frame.data
            await near.send_str(frame.data)
        await near.close()


def passed(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are passed on."""
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in HOP and not name.lower().startswith(SOCKET_HEADERS)
    }


def error_words(text: str) -> str:
    """Return the sentence of an error, where it has one."""
    data = text.rpartition("data: ")[2]
    try:
        body: Any = json.loads(data)
        error: Any = body.get("error") or body["response"]["error"]
        return (error if isinstance(error, str) else error["message"])[:ERROR_MAX]
    except (ValueError, KeyError, TypeError, AttributeError):
        return " ".join(text.split())[:ERROR_MAX]


@asynccontextmanager
async def proxied(
    server_url: str, calls: Sequence[ForcedCall], sockets: bool = True
) -> AsyncGenerator[tuple[str, ProxyNotes]]:
    """Keep a proxy inside the block; yields its address, and what it notes."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http:
        proxy = ForcingProxy(server_url, calls, http, sockets)
        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", proxy.notes
        finally:
            await runner.cleanup()
