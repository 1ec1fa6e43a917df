"""One request and its answer, without I/O: payloads and their times in, what they mean out."""

from dataclasses import dataclass, field

import msgspec

from draftwerk_tools.loadtest.options import Endpoint
from draftwerk_tools.loadtest.server.reply_types import (
    Chunk,
    ReplyChoice,
    Response,
    ServerTimes,
    SpeculationReply,
    StreamedEvent,
    Timings,
    UsageReply,
    lenient,
    present,
)

FAILED_EVENTS = ("response.failed", "error")
LAST_EVENTS = ("response.completed", "response.incomplete", "response.cancelled")


class Failure(Exception):
    """A request that did not end well: a kind to count, and the details."""

    def __init__(
        self, kind: str, detail: str = "", status: int | None = None, retry_after: str | None = None
    ) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail[:300]
        self.status = status
        self.retry_after = retry_after


@dataclass(slots=True)
class Exchange:
    """The reply so far; times are the transport's clock in seconds.

    `chunk_tokens[i]` is the count of output tokens after `chunk_times[i]`, where the server sends
    it.
    `resent` counts kept connections that turned out dead before they brought any of the reply.
    """

    endpoint: Endpoint
    whole: bool = False
    sent_s: float | None = None
    resent: int = 0
    chunk_times: list[float] = field(default_factory=list[float])
    chunk_tokens: list[int] = field(default_factory=list[int])
    pieces: list[str] = field(default_factory=list[str])
    ended_s: float | None = None
    finish_reason: str | None = None
    done: bool = False
    response_id: str = ""
    usage: UsageReply | None = None
    times: ServerTimes | None = None
    timings: Timings | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def speculation(self) -> SpeculationReply | None:
        return self.times.speculative_decoding if self.times else None

    def receive(self, payload: bytes, at_s: float) -> None:
        """Take in one event's data, or the whole reply of a request that is not streamed."""
        self.ended_s = at_s
        self.done = self.done or self.whole
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            self._understand(payload, at_s)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Failure("protocol", f"{error}: {payload[:120]!r}") from error

    def finish(self) -> None:
        """Note the stream's end; one that was cut off is a failure."""
        if not self.done and self.finish_reason is None:
            raise Failure("truncated", "the stream ended without a last word")
        if not self.chunk_times and not self.whole and not (self.usage and self.usage.output):
            raise Failure("empty", "the answer has no content")

    def _understand(self, payload: bytes, at_s: float) -> None:
        if self.endpoint != "responses":
            self._chunk(msgspec.json.decode(payload, type=Chunk), at_s)
        elif self.whole:
            self._response(msgspec.json.decode(payload, type=Response))
        else:
            self._event(msgspec.json.decode(payload, type=StreamedEvent), at_s)

    def _chunk(self, chunk: Chunk, at_s: float) -> None:
        if present(chunk.error):
            raise Failure("error event", bytes(chunk.error).decode(errors="replace"))
        self.usage = chunk.usage or self.usage
        self.times = lenient(chunk.metrics, ServerTimes) or self.times
        self.timings = lenient(chunk.timings, Timings) or self.timings
        for choice in chunk.choices:
            self._choice(choice)
        if any(choice.has_content for choice in chunk.choices) and not self.whole:
            self._content(at_s, chunk.usage)

    def _choice(self, choice: ReplyChoice) -> None:
        self.finish_reason = choice.finish_reason or self.finish_reason
        if choice.index == 0 and choice.piece:
            self.pieces.append(choice.piece)

    def _content(self, at_s: float, usage: UsageReply | None = None) -> None:
        self.chunk_times.append(at_s)
        if usage and usage.output is not None:
            self.chunk_tokens.append(usage.output)

    def _event(self, event: StreamedEvent, at_s: float) -> None:
        if event.type in FAILED_EVENTS:
            raise Failure("error event", _detail(event))
        if event.type.endswith(".delta") and isinstance(event.delta, str) and event.delta:
            self.pieces.append(event.delta)
            self._content(at_s)
        if event.response is not None:
            self.response_id = event.response.id or self.response_id
        if event.type in LAST_EVENTS and event.response is not None:
            self._response(event.response)
            self.finish_reason = self.finish_reason or event.type.removeprefix("response.")

    def _response(self, response: Response) -> None:
        if present(response.error):
            raise Failure("error event", bytes(response.error).decode(errors="replace"))
        self.done = True
        self.finish_reason = _FINISH.get(response.status, response.status) or None
        self.usage = response.usage or self.usage
        self.times = lenient(response.metrics, ServerTimes) or self.times
        if self.whole:
            parts = (part for item in response.output for part in item.content or [])
            self.pieces.extend(part.text for part in parts if part.text)


def _detail(event: StreamedEvent) -> str:
    """Return the error's message, from whichever field of the event has it."""
    inner = event.response.error if event.response else event.error
    return bytes(inner).decode(errors="replace") or event.message or event.type


_FINISH = {"completed": "stop", "incomplete": "length"}
