"""The events of a streamed message, in their order.

message_start,
    content_block_start, n x content_block_delta, content_block_stop, for each block,
message_delta, message_stop | error
"""

from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.anthropic.schema import AnthropicUsage, MessageReply, ReplyBlock, StopReason
from draftwerk.api.shared.usage import RequestMetrics


class MessageEvent(Struct, frozen=True, tag_field="type"):
    """Base of all events of a message."""


class MessageStart(MessageEvent, frozen=True, tag="message_start"):
    """The message begins; which of the input's tokens were cached is told at its end."""

    message: MessageReply


class BlockStart(MessageEvent, frozen=True, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: ReplyBlock


class NewText(Struct, frozen=True, tag_field="type", tag="text_delta"):
    text: str


class NewThinking(Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    thinking: str


class NewInput(Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    partial_json: str


class BlockDelta(MessageEvent, frozen=True, tag="content_block_delta"):
    """An addition to a block."""

    index: int
    delta: NewText | NewThinking | NewInput


class BlockStop(MessageEvent, frozen=True, tag="content_block_stop"):
    """A block is whole, or was cut."""

    index: int


class Ending(Struct, frozen=True):
    """How a message ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """The tokens of a text that was cut where it does not tell them: what to send back with it;
    ours."""


class MessageDelta(MessageEvent, frozen=True, tag="message_delta"):
    """The message has ended."""

    delta: Ending
    usage: AnthropicUsage
    metrics: RequestMetrics | UnsetType = UNSET


class MessageStop(MessageEvent, frozen=True, tag="message_stop"):
    """The last event."""


class MessageFault(Struct, frozen=True):
    """A fault, in the protocol's words."""

    type: str
    message: str


class MessageError(MessageEvent, frozen=True, tag="error"):
    """The last event of a message that could not be finished."""

    error: MessageFault
