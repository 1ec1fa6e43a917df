"""The items of a conversation that clients send: messages, calls, results and others."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from draftwerk.api.requests.field_rows import FieldRows, knows, no_effect
from draftwerk.api.requests.field_types import MESSAGES_MAX, BodyText, Name, TokenIds
from draftwerk.api.requests.segments_schema import MessagePart, TextPart
from draftwerk.api.requests.tools_schema import CallId

ITEM_TYPES = frozenset(
    (
        *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "item_reference", "compaction"),
    )
)
"""The kinds of items that become part of the prompt."""
AS_TEXT = frozenset(
    f"{name}_call{end}"
    for name in ("local_shell", "shell", "apply_patch")
    for end in ("", "_output")
)
"""Calls that a client ran for a tool which models are trained for: the model reads their JSON."""
DROPPED: FieldRows = no_effect(
    *("additional_tools", "code_interpreter_call", "compaction_trigger", "computer_call"),
    *("computer_call_output", "configuration_update", "file_search_call", "image_generation_call"),
    *("mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools", "program"),
    *("program_output", "tool_search_call", "tool_search_output", "web_search_call"),
    why="of a hosted tool; the answer behind it says what it came to",
)


class ReasoningTextPart(TextPart, frozen=True, tag="reasoning_text"):
    """Reasoning before an earlier answer."""


class SummaryPart(TextPart, frozen=True, tag="summary_text"):
    """A summary of it."""


ItemPart = MessagePart | ReasoningTextPart | SummaryPart


@knows(
    no_effect("status", "async", "caller", "created_by", why="they describe an item"),
    no_effect("agent", why="there is one model"),
    no_effect("encrypted_content", why="only what this server compacted can be read"),
)
class InputMessage(Struct, frozen=True):
    """An item of the input: a message, a call, its result, or reasoning; earlier output may be sent
    back as it came.
    """

    role: Literal["system", "developer", "user", "assistant"] | None = None
    """The role of a message."""
    content: BodyText | Annotated[list[ItemPart], Meta(max_length=MESSAGES_MAX)] | None = None
    """The content of a message, or of reasoning."""
    type: Annotated[str, Meta(max_length=64)] | None = None
    """A message, where it is absent."""
    id: Name | None = None
    """The item that a reference names, of a kept response, or of a conversation."""
    phase: Literal["commentary", "final_answer"] | None = None
    """The phase of an answer's message; kept and given back."""
    call_id: CallId | None = None
    """The id of a call, and of its result."""
    name: Name | None = None
    """The function of a call."""
    namespace: Name | None = None
    """The namespace that a call's tool is in."""
    arguments: Any = None
    """The arguments of a call: one object in JSON, as a text; anything else is taken for what was
    cut."""
    input: BodyText | None = None
    """The input of a custom tool's call."""
    output: Any = None
    """The result of a call: a text, or a list of texts."""
    summary: Annotated[list[SummaryPart], Meta(max_length=MESSAGES_MAX)] | None = None
    """The parts of reasoning; read where there is no content."""
    encrypted_content: BodyText | None = None
    """The content of a compaction, as this server wrote it."""
    token_ids: TokenIds | None = None
    """Tokens that an output was generated as, in its last item; ours."""
    action: Any = None
    operation: Any = None
    """The operation of a call that the client ran."""

    kinds: ClassVar[frozenset[str]] = frozenset((*DROPPED, *AS_TEXT))


InputItems = BodyText | Annotated[list[InputMessage], Meta(max_length=MESSAGES_MAX)]
