"""The response that owns its generation: server-sent events, or one JSON body."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from starlette.types import Receive, Scope, Send

from draftwerk.actors.events.client_events import Failed
from draftwerk.api.http.connection import while_connected
from draftwerk.api.http.connection_ends import abort_of
from draftwerk.api.http.deadline import Deadline
from draftwerk.api.responses.serializer import GatheredChoice, Serializer
from draftwerk.api.shared.calls import Call, error_of
from draftwerk.api.shared.errors import (
    ApiError,
    ClientGoneError,
    SlowClientError,
    internal,
    response,
)
from draftwerk.api.shared.generation import Generation
from draftwerk.api.shared.prompt_tokens import check_length
from draftwerk.api.shared.state import ServerState
from draftwerk.api.shared.usage import Usage

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
LINE_HEADERS = [
    (b"content-type", b"application/x-ndjson"),
    *STREAM_HEADERS[1:],
]
Headers = Sequence[tuple[bytes, bytes]]
JSON_HEADERS = [(b"content-type", b"application/json")]

log = logging.getLogger("draftwerk")


def framed(chunk: msgspec.Struct) -> bytes:
    """Return a chunk as one event, LF only; named if the chunk has a tag."""
    name = chunk.__struct_config__.tag
    start = f"event: {name}\n".encode() if name else b""
    return start + b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def as_line(chunk: msgspec.Struct) -> bytes:
    """Return a chunk as one line of JSON."""
    return msgspec.json.encode(chunk) + b"\n"


class StreamForm(msgspec.Struct, frozen=True):
    """How chunks are told apart on a connection."""

    headers: list[tuple[bytes, bytes]]
    framed: Callable[[msgspec.Struct], bytes]
    keep_alive: bytes
    """The comment that is sent where nothing comes for long; empty where there is none."""


EVENTS = StreamForm(STREAM_HEADERS, framed, KEEP_ALIVE)
JSON_LINES = StreamForm(LINE_HEADERS, as_line, b"")


@dataclass(slots=True)
class GenerationResponse:
    """An ASGI response: the generation lasts exactly as long as this call."""

    state: ServerState
    call: Call
    serializer: Serializer
    stream: bool
    counts: bool = False
    """Whether every chunk carries usage."""
    end: bytes = DONE
    """The bytes after the last event."""
    form: StreamForm = EVENTS
    headers: Headers = ()
    """Besides those of the form."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await check_length(self.state, self.call)
            async with (
                while_connected(receive) as unwatch,
                self.state.generation(self.call) as generation,
            ):
                if self.stream:
                    await EventStream(self, generation, send, unwatch).run()
                else:
                    body = await self._whole(generation)
                    unwatch()
                    await send_json(body, send, self.headers)
        except ApiError as error:
            await response(error, scope)(scope, receive, send)
        except SlowClientError:
            abort_of(scope)()
            await asyncio.sleep(0)  # uvicorn is notified before the return
        except ClientGoneError:
            pass

    async def _whole(self, generation: Generation) -> bytes:
        """Gather every choice; returns the reply."""
        choices = [GatheredChoice(index) for index in range(generation.choices_left)]
        async for event in generation.events():
            if isinstance(event, Failed):
                raise error_of(event, self.call)
            choices[event.choice].add(event)
        timer = generation.timer
        reply = self.serializer.reply(choices, timer.usage(), timer.metrics())
        return msgspec.json.encode(reply)


async def send_json(body: bytes, send: Send, more: Headers = ()) -> None:
    """Send a whole reply."""
    headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(slots=True)
class EventStream:
    """One streamed reply: the status waits for the first event, so that early errors have one."""

    answer: GenerationResponse
    generation: Generation
    send: Send
    unwatch: Callable[[], bool]
    started: bool = False
    idle: Deadline = field(init=False)
    """The deadline of waiting for events: then a comment is sent."""
    writing: Deadline = field(init=False)
    """The deadline of waiting for the client to read."""
    _stalled: bool = False

    def __post_init__(self) -> None:
        settings, task = self.answer.state.settings, asyncio.current_task()
        assert task is not None

        def stalled() -> None:
            self._stalled = True
            task.cancel()

        self.idle = Deadline(settings.keep_alive_s, self.generation.wake)
        self.writing = Deadline(settings.write_deadline_s, stalled)

    async def run(self) -> None:
        """Send each event as it comes, to the last; a comment whenever none comes for long."""
        try:
            await self._run()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Not if the task was cancelled from elsewhere as well.
            if self._stalled and task is not None and not task.uncancel():
                raise SlowClientError from None
            raise
        finally:
            self.idle.close()
            self.writing.close()

    async def _run(self) -> None:
        generation = self.generation
        try:
            while not generation.over:
                self.idle.begin()
                events = await generation.take()
                self.idle.end()
                if not self.started:
                    if events and isinstance(events[0], Failed):
                        raise error_of(events[0], self.answer.call)
                    await self._start()
                if not events and self.answer.form.keep_alive:
                    await self._write(self.answer.form.keep_alive)
                for event in events:
                    if isinstance(event, Failed):
                        raise error_of(event, self.answer.call)
                    await self._say(self.answer.serializer.chunks(event, self._usage()))
            timer = generation.timer
            await self._say(self.answer.serializer.last_chunks(timer.usage(), timer.metrics()))
        except ClientGoneError:
            raise
        except Exception as error:
            await self._fail(error)
        self.unwatch()
        await self._write(self.answer.end, more=False)

    async def _start(self) -> None:
        self.started = True
        headers = [*self.answer.form.headers, *self.answer.headers]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._say(self.answer.serializer.first_chunks())

    async def _fail(self, error: Exception) -> None:
        """Make an error the stream's last event, or the whole reply if nothing was sent."""
        if not isinstance(error, ApiError):
            log.exception("id=%s a stream broke", self.generation.request_id)
            error = internal()
        if not self.started:
            raise error
        await self._say(self.answer.serializer.failure(error))

    async def _say(self, chunks: list[msgspec.Struct]) -> None:
        for chunk in chunks:
            await self._write(self.answer.form.framed(chunk))

    async def _write(self, body: bytes, more: bool = True) -> None:
        self.writing.begin()
        await self.send({"type": "http.response.body", "body": body, "more_body": more})
        self.writing.end()

    def _usage(self) -> Usage | None:
        return self.generation.timer.running_usage() if self.answer.counts else None
