"""The events of a response in their order, over SSE and WebSocket alike.

created, in_progress, output_item.added, content_part.added,
n x output_text.delta,
output_text.done, content_part.done, output_item.done,
completed | incomplete | failed
"""

from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.core.errors import ErrorBody
from draftwerk.api.openai.replies import TokenLogprob
from draftwerk.api.openai.responses_schema import OutputMessage, OutputText, ResponseObject


class ServerEvent(Struct, frozen=True, tag_field="type"):
    """Base of all events of a response; numbers count from 0."""

    sequence_number: int
    stream_id: str | UnsetType = UNSET
    """The stream, if the client named one."""


class ResponseEvent(ServerEvent, frozen=True, kw_only=True):
    response: ResponseObject


class Created(ResponseEvent, frozen=True, tag="response.created"): ...


class InProgress(ResponseEvent, frozen=True, tag="response.in_progress"): ...


class Completed(ResponseEvent, frozen=True, tag="response.completed"): ...


class Incomplete(ResponseEvent, frozen=True, tag="response.incomplete"): ...


class ResponseFailed(ResponseEvent, frozen=True, tag="response.failed"): ...


class ItemEvent(ServerEvent, frozen=True, kw_only=True):
    item: OutputMessage
    output_index: int = 0


class ItemAdded(ItemEvent, frozen=True, tag="response.output_item.added"): ...


class ItemDone(ItemEvent, frozen=True, tag="response.output_item.done"): ...


class PartEvent(ServerEvent, frozen=True, kw_only=True):
    item_id: str
    part: OutputText
    output_index: int = 0
    content_index: int = 0


class PartAdded(PartEvent, frozen=True, tag="response.content_part.added"): ...


class PartDone(PartEvent, frozen=True, tag="response.content_part.done"): ...


class TextDelta(ServerEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    item_id: str
    delta: str
    output_index: int = 0
    content_index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    origins: tuple[str, ...] | UnsetType = UNSET


class HypothesisEvent(
    ServerEvent, frozen=True, kw_only=True, tag="response.output_text.hypothesis"
):
    """Ours, on request: the whole of a beam search's best text so far; deltas settle it."""

    item_id: str
    text: str
    output_index: int = 0
    content_index: int = 0


class TextDone(ServerEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    item_id: str
    text: str
    output_index: int = 0
    content_index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


class ErrorEvent(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The answer to a client's event that could not be obeyed; the connection lives on."""

    status: int
    error: ErrorBody
    stream_id: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    """When to come back, as HTTP would say it."""
