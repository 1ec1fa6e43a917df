"""A small OpenAI server with known delays, which writes down when it did what."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.waiting import DEADLINE_S


@dataclass(frozen=True)
class Manner:
    """How the stub answers; `quirk` is one way in which servers differ."""

    first_s: float = 0.3
    gap_s: float = 0.1
    chunks: int = 4
    tokens_per_chunk: int = 1
    quirk: str = ""
    metrics: dict[str, Any] | None = None
    answer: Callable[[str], list[str]] | None = None


@dataclass
class Served:
    """What happened to one request; times are of the clock that the client uses."""

    received_s: float
    body: dict[str, Any]
    written_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    hung_up: bool = False


class Stub:
    """Answers chat, completions and responses in the manner it was given."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.served: list[Served] = []
        self.stalled_until_s = 0.0
        self.url = ""
        self.pages = 0
        self.connections: set[object] = set()
        self.cached: set[tuple[str, str]] = set()
        """Salt and question of every answer, for the quirks that keep what they computed."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/metrics", self.metrics)
        if "salt in" in self.manner.quirk:
            app.router.add_get(self.page_with_salt[0], self.describe)
        app.router.add_get("/v1/responses", self.responses_ws)
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
            app.router.add_post(path, self.post)
        return app

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "stub"}]})

    @property
    def page_with_salt(self) -> tuple[str, dict[str, Any]]:
        """The page that lists `cache_salt` among the obeyed fields."""
        if self.manner.quirk == "salt in capabilities":
            supported = {"supported": {"cache_salt": "text"}}
            return "/v1/capabilities", {"endpoints": {"/v1/chat/completions": supported}}
        body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Chat"}}}}
        paths = {"/v1/chat/completions": {"post": {"requestBody": body}}}
        schemas = {"Chat": {"properties": {"cache_salt": {"type": "string"}}}}
        return "/openapi.json", {"paths": paths, "components": {"schemas": schemas}}

    async def describe(self, request: web.Request) -> web.Response:
        return web.json_response(self.page_with_salt[1])

    def first_s(self, body: dict[str, Any], asked: str) -> float:
        """Return the time to the first piece; a tenth of it for what has been answered before."""
        first_s = self.manner.first_s * body.get("slowness", 1)
        if "salt" not in self.manner.quirk:
            return first_s
        name = (str(body.get("cache_salt")), asked)
        known = name in self.cached
        self.cached.add(name)
        return first_s / 10 if known else first_s

    async def metrics(self, request: web.Request) -> web.Response:
        self.pages += 1
        return web.Response(
            text="# TYPE vllm:num_requests_running gauge\n"
            'vllm:num_requests_running{engine="0"} 3\n'
            "# TYPE vllm:generation_tokens_total counter\n"
            f'vllm:generation_tokens_total{{engine="0"}} {100 * self.pages}\n'
        )

    async def post(self, request: web.Request) -> web.StreamResponse:
        served = Served(time.perf_counter(), await request.json())
        self.served.append(served)
        if self.manner.quirk == "drops all" or (
            self.manner.quirk == "drops kept" and self.kept(request)
        ):
            assert request.transport is not None
            request.transport.abort()
        if self.manner.quirk == "unknown model":
            error = {"message": "The model `stub` does not exist.", "type": "not_found_error"}
            return web.json_response({"error": error}, status=404)
        if self.manner.quirk == "refuse":
            return web.json_response({"error": {}}, status=503, headers={"Retry-After": "2"})
        if not served.body.get("stream"):
            return await self.whole(request.path, served)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            await self.stream(request.path, served, response)
        except (ConnectionError, asyncio.CancelledError):
            served.hung_up = True
            raise
        return response

    def kept(self, request: web.Request) -> bool:
        """Whether the connection has carried a request before."""
        known = request.protocol in self.connections
        self.connections.add(request.protocol)
        return known

    async def stream(self, path: str, served: Served, response: web.StreamResponse) -> None:
        end = b"\r\n\r\n" if self.manner.quirk == "crlf" else b"\n\n"
        async for event in self.events(path, served):
            data = event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode()
            await response.write(data + end)
            if self.manner.quirk == "cut" and len(served.written_s) == 2:
                assert response._req is not None and response._req.transport is not None
                response._req.transport.abort()
                return
        served.ended_s = time.perf_counter()

    async def whole(self, path: str, served: Served) -> web.Response:
        pieces = [piece async for piece in self.pieces(served)]
        served.ended_s = time.perf_counter()
        choice = {"index": 0, "message": {"content": "".join(pieces)}, "finish_reason": "length"}
        return web.json_response({"choices": [choice], "usage": self.usage(len(pieces))})

    async def responses_ws(self, request: web.Request) -> web.WebSocketResponse:
        if self.manner.quirk == "refuse":
            raise web.HTTPServiceUnavailable
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                served = Served(time.perf_counter(), json.loads(message.data))
                self.served.append(served)
                async for event in self.events("/v1/responses", served):
                    await socket.send_str(json.dumps(event))
                served.ended_s = time.perf_counter()
        return socket

    async def pieces(self, served: Served) -> AsyncIterator[str]:
        """Wait and yield; the tests compare with these delays."""
        manner = self.manner
        asked = served.body.get("messages", [{}])[-1].get("content", "")
        pieces = manner.answer(asked) if manner.answer else ["a "] * manner.chunks
        first_s = self.first_s(served.body, asked)
        await asyncio.sleep(max(first_s, self.stalled_until_s - time.perf_counter()))
        for index, piece in enumerate(pieces):
            if index:
                await asyncio.sleep(manner.gap_s)
            served.written_s.append(time.perf_counter())
            yield piece

    async def events(self, path: str, served: Served) -> AsyncIterator[dict[str, Any] | bytes]:
        if path == "/v1/responses":
            async for event in self.response_events(served):
                yield event
            return
        quirk = self.manner.quirk
        if quirk == "role first":
            yield chunk({"role": "assistant", "content": ""})
        if quirk == "comments":
            yield b": keep-alive"
        count = 0
        async for piece in self.pieces(served):
            count += 1
            event = {"choices": [{"index": 0, "text": piece}]} if "chat" not in path else None
            event = event or chunk({"content": piece})
            if (served.body.get("stream_options") or {}).get("continuous_usage_stats"):
                event["usage"] = self.usage(count)
            yield event
        if quirk == "error event":
            yield {"error": {"message": "the engine broke"}}
        if quirk == "no last word":
            return
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": None}
        if quirk != "no usage":
            yield {"choices": [], "usage": self.usage(count), "metrics": self.manner.metrics}
        if quirk != "no done":
            yield b"data: [DONE]"

    async def response_events(self, served: Served) -> AsyncIterator[dict[str, Any]]:
        yield {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}
        count = 0
        async for piece in self.pieces(served):
            count += 1
            yield {"type": "response.output_text.delta", "delta": piece}
        tokens = count * self.manner.tokens_per_chunk
        usage = {"input_tokens": 10, "output_tokens": tokens}
        yield {
            "type": "response.completed",
            "response": {"id": "r1", "status": "completed", "usage": usage, "error": None},
        }

    def usage(self, chunks: int) -> dict[str, Any]:
        return {
            "prompt_tokens": 10,
            "completion_tokens": chunks * self.manner.tokens_per_chunk,
            "prompt_tokens_details": {"cached_tokens": 4},
        }


def chunk(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


@contextmanager
def stub(manner: Manner | None = None, **changes: Any) -> Iterator[Stub]:
    """Serve from another thread while the block runs."""
    server = Stub(replace(manner or Manner(), **changes))
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(DEADLINE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
