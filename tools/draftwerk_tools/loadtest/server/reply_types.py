"""The shapes that servers send, as far as they are read. Unknown fields are ignored."""

from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

ABSENT = Raw()


class TokenDetails(Struct):
    cached_tokens: int | None = None


class UsageReply(Struct):
    """Token counts: `input_` and `output_` in responses, `prompt_` and `completion_` elsewhere."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    input_tokens_details: TokenDetails | None = None

    @property
    def prompt(self) -> int | None:
        return self.input_tokens if self.prompt_tokens is None else self.prompt_tokens

    @property
    def output(self) -> int | None:
        return self.output_tokens if self.completion_tokens is None else self.completion_tokens

    @property
    def cached(self) -> int | None:
        details = self.prompt_tokens_details or self.input_tokens_details
        return details.cached_tokens if details else None


class SpeculationReply(Struct):
    """How drafting went: `acceptance_histogram[j]` steps had j drafted tokens accepted."""

    acceptance_histogram: list[int] | None = None
    num_spec_steps: int | None = None
    num_accepted_draft_tokens: int | None = None
    num_draft_tokens: int | None = None

    def adds_up(self) -> bool:
        """Whether the histogram agrees with the totals sent beside it."""
        if self.acceptance_histogram is None:
            return True
        steps = sum(self.acceptance_histogram)
        accepted = sum(j * count for j, count in enumerate(self.acceptance_histogram))
        return self.num_spec_steps in (None, steps) and (
            self.num_accepted_draft_tokens in (None, accepted)
        )


class ServerTimes(Struct):
    """The server's own account of a request, in ms."""

    time_to_first_token_ms: float | None = None
    queue_time_ms: float | None = None
    speculative_decoding: SpeculationReply | None = None


class Timings(Struct):
    """llama.cpp's account of a request."""

    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class ReplyMessage(Struct):
    """A delta or a whole message; whatever of it holds something counts as content."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: Raw = ABSENT

    @property
    def text(self) -> str:
        return self.reasoning_content or self.reasoning or self.content or self.refusal or ""


class ReplyChoice(Struct):
    index: int = 0
    text: str | None = None
    delta: ReplyMessage | None = None
    message: ReplyMessage | None = None
    finish_reason: str | None = None

    @property
    def piece(self) -> str:
        if self.text is not None:
            return self.text
        said = self.delta or self.message
        return said.text if said else ""

    @property
    def has_content(self) -> bool:
        return bool(self.piece) or bool(self.delta and present(self.delta.tool_calls))


class Chunk(Struct):
    """A chunk or a whole reply of chat and completions; other servers' extras stay raw."""

    choices: list[ReplyChoice] = []
    usage: UsageReply | None = None
    metrics: Raw = ABSENT
    timings: Raw = ABSENT
    error: Raw = ABSENT


class OutputPart(Struct):
    text: str | None = None


class OutputItem(Struct):
    content: list[OutputPart] | None = None


class Response(Struct):
    """The response object inside the events of the responses endpoint, or the whole reply."""

    id: str = ""
    status: str = ""
    usage: UsageReply | None = None
    metrics: Raw = ABSENT
    error: Raw = ABSENT
    output: list[OutputItem] = []


class StreamedEvent(Struct):
    type: str = ""
    delta: object = None
    response: Response | None = None
    error: Raw = ABSENT
    message: str | None = None


class Fault(Struct):
    message: str


class FaultReply(Struct):
    """The body that servers send with a status that is not 200."""

    error: Fault


class Model(Struct):
    id: str


class ModelList(Struct):
    data: list[Model] = []


T = TypeVar("T")
MESSAGE_MAX = 200


def error_message(body: bytes) -> str:
    """Return the message in the body of a refused request, or the body's beginning."""
    reply = lenient(Raw(body), FaultReply)
    text = reply.error.message if reply else body.decode(errors="replace")
    return " ".join(text.split())[:MESSAGE_MAX] or "no message"


def present(raw: Raw) -> bool:
    """Whether the field was sent and is not null."""
    return bytes(raw) not in (b"", b"null")


def lenient(raw: Raw, kind: type[T]) -> T | None:
    """Decode an optional extra; one of another shape is another server's affair, not an error."""
    if not present(raw):
        return None
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(raw, type=kind)
    return None
