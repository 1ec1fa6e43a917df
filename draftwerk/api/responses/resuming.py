"""Reading kept streams: by the connection that began one, and by those that go on from it."""

import asyncio
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from draftwerk.api.http.connection import while_connected
from draftwerk.api.http.connection_ends import abort_of
from draftwerk.api.responses.sse import KEEP_ALIVE, GenerationResponse
from draftwerk.api.shared.errors import (
    ApiError,
    ClientGoneError,
    SlowClientError,
    refused,
    response,
)
from draftwerk.api.shared.handling import EVENTS, Endpoint, json_reply, state_of, tenant_of
from draftwerk.api.shared.kept_streams import KeptStream, stream_not_found
from draftwerk.api.shared.state import ServerState

NO_CONTENT = 204
"""Status behind the last event: a browser's EventSource does not come again."""

RETRY = b"retry: 500\n"
"""Milliseconds; browsers wait for seconds without it."""


class EndedStream(msgspec.Struct, frozen=True):
    """Answer to the end of a stream."""

    id: str
    object: str = "stream"
    deleted: bool = True


@dataclass(slots=True)
class StreamReader:
    """An ASGI response: the events of a kept stream from one on, and those still to come.

    Its connection is broken off where it cannot have them all to the last: the stream was ended, or
    the client reads so slowly that the next one is no longer kept.
    """

    state: ServerState
    stream: KeptStream
    next: int = 0
    """Number of the first event to send."""
    retry: bytes = b""
    """A line of the first event that tells a browser when to come again."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.stream.enter()
        try:
            with self.state.reading():
                async with while_connected(receive) as unwatch:
                    await self._send_all(send)
                    unwatch()
                    await send({"type": "http.response.body", "body": b""})
        except ApiError as error:
            await response(error, scope)(scope, receive, send)
        except (SlowClientError, TimeoutError):
            abort_of(scope)()
            await asyncio.sleep(0)  # uvicorn is notified before the return
        except ClientGoneError:
            pass
        finally:
            self.stream.leave()

    async def _send_all(self, send: Send) -> None:
        stream, idle_s = self.stream, self.state.settings.keep_alive_s
        while stream.head is None and not stream.over:
            await stream.grown(idle_s)
        if stream.head is None:
            raise stream_not_found(stream.stream_id)
        await send({**stream.head})  # each reader's middleware adds headers of its own
        while self.next < stream.count or not stream.over:
            while self.next < stream.count:
                await self._send_next(send)
            if not stream.over and not await stream.grown(idle_s):
                await self._write(send, KEEP_ALIVE)
        if not stream.whole:
            raise SlowClientError

    async def _send_next(self, send: Send) -> None:
        event = self.stream.event(self.next)
        if event is None:
            raise SlowClientError
        await self._write(send, self.retry + event)
        self.next, self.retry = self.next + 1, b""

    async def _write(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self.state.settings.write_deadline_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})


def resumable(request: Request, stream_id: str, answer: GenerationResponse) -> StreamReader:
    """Return the response of a stream that is kept while it comes and for a while after."""
    state = answer.state
    kept = state.streams[tenant_of(request)]
    stream = kept.begin(stream_id, state.settings.resume_s, answer, request.scope)
    return StreamReader(state, stream)


def resumed(request: Request, stream_id: str) -> ASGIApp:
    """Return the rest of a kept stream, from what the request says on. Raises ApiError."""
    state = state_of(request)
    stream = state.streams[tenant_of(request)].find(stream_id)
    start, name = _start(request)
    if start > stream.count:
        said = f"The stream has {stream.count} events; there is none {start - 1} to go on from."
        raise refused(said, name, "invalid")
    if start < stream.first:
        said = f"The first event that is still kept of the stream is {stream.first}."
        raise refused(said, name, "invalid")
    if stream.whole and start == stream.count:
        return Response(status_code=NO_CONTENT)
    return StreamReader(state, stream, start, RETRY)


def _start(request: Request) -> tuple[int, str]:
    """Return the number of the first event wanted, and the field that says so.

    A browser's header goes before the address.
    """
    for name, text in (
        ("Last-Event-ID", request.headers.get("last-event-id")),
        ("starting_after", request.query_params.get("starting_after")),
    ):
        if text:
            if not (text.isascii() and text.isdecimal() and len(text) < 10):
                raise refused(f"`{name}` must be the number of an event.", name, "invalid")
            return int(text) + 1, name
    return 0, "starting_after"


async def kept_stream(request: Request) -> ASGIApp:
    """`GET` and `DELETE /v1/streams/{stream_id}`."""
    stream_id: str = request.path_params["stream_id"]
    if request.method != "DELETE":
        return resumed(request, stream_id)
    state_of(request).streams[tenant_of(request)].find(stream_id).drop()
    return json_reply(EndedStream(stream_id))


KEPT = "/v1/streams/{stream_id}"
ENDPOINTS = (
    Endpoint("GET", KEPT, kept_stream, "Go on with a kept stream", media_type=EVENTS),
    Endpoint("DELETE", KEPT, kept_stream, "End a kept stream", reply=EndedStream),
)
