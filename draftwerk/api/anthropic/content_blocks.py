"""Blocks that the content of a message is made of, as `/v1/messages` takes them."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from draftwerk.api.requests.field_rows import FieldRows, no_effect
from draftwerk.api.requests.field_types import MESSAGES_MAX, BodyText, Label
from draftwerk.api.requests.tools_schema import CallId

ToolName = Annotated[str, Meta(pattern="^[a-zA-Z0-9_.-]{1,128}$")]
SourceType = Literal["text", "content", "base64", "url", "file"]


CACHED = no_effect("cache_control", why="prefixes are found without it")


class ContentBlock(Struct, frozen=True, tag_field="type"):
    """Base of all blocks."""

    rows: ClassVar[FieldRows] = {
        **CACHED,
        **no_effect("citations", why="it tells where a text is from"),
        **no_effect("caller", "toolset_name", why="it tells where a call is from"),
    }
    kinds: ClassVar[tuple[str, ...]] = (
        *("compaction", "container_upload", "browser_state"),
        *("tool_addition", "tool_removal"),
    )
    """Types that are refused: what they stand for is kept, or done, by another server."""


class TextInput(ContentBlock, frozen=True, tag="text"):
    """A text."""

    text: BodyText


TextBlocks = Annotated[list[TextInput], Meta(max_length=MESSAGES_MAX)]


class Citations(Struct, frozen=True):
    """Whether an answer is to tell the places that it is from."""

    enabled: bool | None = None


class DocumentSource(Struct, frozen=True):
    """A document's text, or the file that it would be read from."""

    type: SourceType
    media_type: Label | None = None
    data: BodyText | None = None
    """The text of a source of that type."""
    content: BodyText | TextBlocks | None = None
    """The same, as blocks."""


class DocumentInput(ContentBlock, frozen=True, tag="document"):
    """A document; its text is shown behind its title and context."""

    source: DocumentSource
    title: Label | None = None
    context: BodyText | None = None
    citations: Citations | None = None


class SearchResult(ContentBlock, frozen=True, tag="search_result"):
    """A text that was found; it is shown behind its title and source."""

    source: BodyText
    title: Label
    content: TextBlocks
    citations: Citations | None = None


class ToolReference(ContentBlock, frozen=True, tag="tool_reference"):
    """A tool that was found: one that is deferred is told to the model here."""

    tool_name: ToolName


class ToolUse(ContentBlock, frozen=True, tag="tool_use"):
    """A call of a tool."""

    id: CallId
    name: ToolName
    input: dict[str, Any]


ResultBlock = TextInput | DocumentInput | SearchResult | ToolReference


class ToolResult(ContentBlock, frozen=True, tag="tool_result"):
    """A tool's result."""

    tool_use_id: CallId
    content: BodyText | Annotated[list[ResultBlock], Meta(max_length=MESSAGES_MAX)] | None = None
    is_error: bool | None = None
    """Taken, and not shown to the model: the content says so."""


class Thinking(ContentBlock, frozen=True, tag="thinking"):
    """Reasoning before an answer."""

    thinking: BodyText
    signature: BodyText | None = None


class LeftOut(ContentBlock, frozen=True):
    """Base of blocks that only the server that wrote them can read; they are left out."""

    rows: ClassVar[FieldRows] = {
        **ContentBlock.rows,
        **no_effect(
            *("id", "name", "input", "content", "is_error", "tool_use_id", "server_name"),
            *("mcp_server_name", "tools", "from", "to", "trigger"),
            why="the block is left out",
        ),
    }


class RedactedThinking(LeftOut, frozen=True, tag="redacted_thinking"):
    """Reasoning that another server has hidden."""

    data: BodyText


class FoundTools(Struct, frozen=True):
    """Tools that a search has found."""

    rows: ClassVar[FieldRows] = no_effect(
        *("type", "error_code", "error_message"), why="what was found says it"
    )

    tool_references: Annotated[list[ToolReference], Meta(max_length=MESSAGES_MAX)] = msgspec.field(
        default_factory=list[ToolReference]
    )


class FoundToolsBlock(ContentBlock, frozen=True, tag="tool_search_tool_result"):
    """Tools that a search on another server has found; they are told to the model at the front."""

    content: FoundTools
    rows: ClassVar[FieldRows] = {
        **ContentBlock.rows,
        **no_effect("tool_use_id", why="the tools are told at the front"),
    }


class ServerToolUse(LeftOut, frozen=True, tag="server_tool_use"):
    """A call that another server has answered itself."""


class WebSearchResult(LeftOut, frozen=True, tag="web_search_tool_result"):
    """Texts that another server has found."""


class WebFetchResult(LeftOut, frozen=True, tag="web_fetch_tool_result"):
    """A page that another server has read."""


class CodeResult(LeftOut, frozen=True, tag="code_execution_tool_result"):
    """Output of code on another server."""


class ShellResult(LeftOut, frozen=True, tag="bash_code_execution_tool_result"):
    """Output of a command on another server."""


class EditorResult(LeftOut, frozen=True, tag="text_editor_code_execution_tool_result"):
    """A change of a file on another server."""


class AdvisorResult(LeftOut, frozen=True, tag="advisor_tool_result"):
    """Advice of another model."""


class ModelChange(LeftOut, frozen=True, tag="fallback"):
    """A mark where another model went on."""


class McpTools(LeftOut, frozen=True, tag="mcp_tool_listing"):
    """Tools that another server may pass calls on to."""


class McpToolUse(LeftOut, frozen=True, tag="mcp_tool_use"):
    """A call that another server has passed on."""


class McpToolResult(LeftOut, frozen=True, tag="mcp_tool_result"):
    """A result that another server has passed on."""


Block = (
    TextInput | DocumentInput | SearchResult | ToolUse | ToolResult | Thinking | RedactedThinking
    | FoundToolsBlock | ServerToolUse | WebSearchResult | WebFetchResult | CodeResult | ShellResult
    | EditorResult | AdvisorResult | ModelChange | McpTools | McpToolUse | McpToolResult
)  # fmt: skip
Blocks = Annotated[list[Block], Meta(max_length=MESSAGES_MAX)]
