"""The events of a response in their order, over SSE and WebSocket alike.

created, in_progress,
    output_item.added, content_part.added, n x output_text.delta,
    output_text.done, content_part.done, output_item.done,
completed | incomplete | failed

Reasoning comes as an item of its own before the text, and each call behind it.
"""

from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.openai.replies import TokenLogprob
from draftwerk.api.openai.responses.responses_objects import (
    OutputText,
    ResponseItem,
    ResponseObject,
)
from draftwerk.api.shared.errors import ErrorBody


class ServerEvent(Struct, frozen=True, tag_field="type"):
    """Base of all events of a response; numbers count from 0."""

    sequence_number: int
    stream_id: str | UnsetType = UNSET
    """The stream, if the client named one."""


class ResponseEvent(ServerEvent, frozen=True, kw_only=True):
    """An event that carries the state of the whole response."""

    response: ResponseObject
    """The state as of this event."""


class Created(ResponseEvent, frozen=True, tag="response.created"):
    """The response has been accepted; the first event."""


class InProgress(ResponseEvent, frozen=True, tag="response.in_progress"):
    """The response is being generated."""


class Completed(ResponseEvent, frozen=True, tag="response.completed"):
    """The text ended by itself; a last event."""


class Incomplete(ResponseEvent, frozen=True, tag="response.incomplete"):
    """The text reached a limit; a last event."""


class ResponseFailed(ResponseEvent, frozen=True, tag="response.failed"):
    """The response failed; a last event."""


class ItemEvent(ServerEvent, frozen=True, kw_only=True):
    """An event about an item of the output."""

    item: ResponseItem
    """The item as of this event."""
    output_index: int = 0
    """Number of the item in the response's output."""


class ItemAdded(ItemEvent, frozen=True, tag="response.output_item.added"):
    """A message, a call or reasoning begins."""


class ItemDone(ItemEvent, frozen=True, tag="response.output_item.done"):
    """A message, a call or reasoning is whole."""


class PartEvent(ServerEvent, frozen=True, kw_only=True):
    """An event about the text part of the message."""

    item_id: str
    """The output message's id."""
    part: OutputText
    """The text as of this event."""
    output_index: int = 0
    """Number of the item in the response's output."""
    content_index: int = 0
    """Always 0: a message has one text part."""


class PartAdded(PartEvent, frozen=True, tag="response.content_part.added"):
    """The text part begins."""


class PartDone(PartEvent, frozen=True, tag="response.content_part.done"):
    """The text part is whole."""


class TextDelta(ServerEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """New text."""

    item_id: str
    """The output message's id."""
    delta: str
    """The new part of the text."""
    output_index: int = 0
    """Number of the item in the response's output."""
    content_index: int = 0
    """Always 0: a message has one text part."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One item for each new token, if the request asks for them."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per new token: the source whose draft was accepted, or "corrected" or "bonus"."""


class HypothesisEvent(
    ServerEvent, frozen=True, kw_only=True, tag="response.output_text.hypothesis"
):
    """Ours, on request: the best text of a beam search so far, in place of the one before; deltas
    settle it."""

    item_id: str
    """The output message's id, which may be still to come."""
    text: str
    """All of it."""
    output_index: int = 0
    """Number of the item in the response's output."""
    content_index: int = 0
    """Always 0: a message has one text part."""
    is_final: bool = False
    """Always false."""


class TextDone(ServerEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    """The text is whole."""

    item_id: str
    """The output message's id."""
    text: str
    """The whole text."""
    output_index: int = 0
    """Number of the item in the response's output."""
    content_index: int = 0
    """Always 0: a message has one text part."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One item for each token, if the request asks for them."""


class ReasoningDelta(ServerEvent, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """New reasoning."""

    item_id: str
    """The reasoning's id."""
    delta: str
    """The new part."""
    output_index: int = 0
    """Number of the item in the response's output."""
    content_index: int = 0
    """Always 0: reasoning has one part."""


class ReasoningDone(ServerEvent, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """The reasoning is whole."""

    item_id: str
    """The reasoning's id."""
    text: str
    """All of it."""
    output_index: int = 0
    """Number of the item in the response's output."""
    content_index: int = 0
    """Always 0: reasoning has one part."""


class ArgumentsDelta(
    ServerEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"
):
    """New arguments of a call."""

    item_id: str
    """The call's id."""
    delta: str
    """The new part, of one object in JSON."""
    output_index: int = 0
    """Number of the item in the response's output."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per new token: the source whose draft was accepted, or "corrected" or "bonus"."""


class ArgumentsDone(
    ServerEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.done"
):
    """The arguments are whole, or were cut."""

    item_id: str
    """The call's id."""
    name: str
    """The function."""
    arguments: str
    """All of them."""
    output_index: int = 0
    """Number of the item in the response's output."""


class CustomInputDelta(
    ServerEvent, frozen=True, kw_only=True, tag="response.custom_tool_call_input.delta"
):
    """New text for a custom tool."""

    item_id: str
    """The call's id."""
    delta: str
    """The new part."""
    output_index: int = 0
    """Number of the item in the response's output."""


class CustomInputDone(
    ServerEvent, frozen=True, kw_only=True, tag="response.custom_tool_call_input.done"
):
    """The text for a custom tool is whole, or was cut."""

    item_id: str
    """The call's id."""
    input: str
    """All of it."""
    output_index: int = 0
    """Number of the item in the response's output."""


class ErrorEvent(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The answer to a client's event that could not be obeyed; the connection stays open."""

    status: int
    """The HTTP status of the same error."""
    error: ErrorBody
    """The body of the same error."""
    stream_id: str | UnsetType = UNSET
    """The stream, if the client named one."""
    headers: dict[str, str] | UnsetType = UNSET
    """HTTP's `retry-after` fields."""
