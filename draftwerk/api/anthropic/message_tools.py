"""Tools of Messages: which are told to the model, where, and which may be called.

A deferred tool is told where a result first refers to it, so that the prompt before it stays as it
was; until then it is neither told nor called. Tools that Anthropic hosts are left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from draftwerk.api.anthropic.content_blocks import FoundToolsBlock, ToolReference, ToolResult
from draftwerk.api.anthropic.schema import (
    AnthropicMessage,
    AnthropicTool,
    AnthropicToolChoice,
    PromptBody,
)
from draftwerk.api.requests.tool_request import ToolRequest, shown_tool, tool_request
from draftwerk.api.requests.tools_schema import FunctionDefinition
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.replies.grammar import CallMode

MODES: dict[str, CallMode] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
OWN = (None, "custom")
"""Types of tools that a client describes."""
HOSTED = re.compile(
    r"(?:web_search|web_fetch|code_execution|advisor|memory|bash|text_editor|computer"
    r"|(?:browser|computer)_toolset|tool_search_tool_(?:bm25|regex))(?:_\d{8})?|mcp_toolset"
)
"""Types of tools that Anthropic runs itself, or has models trained for."""
SEARCHES = "tool_search_tool_"
"""The beginning of the types of hosted searches for tools."""


class MessageTools(Struct, frozen=True):
    """The tools of a request."""

    request: ToolRequest = ToolRequest()
    deferred: dict[str, str] = {}
    """By name, what the model is told of a deferred tool where it is referred to."""
    others: frozenset[str] = frozenset()
    """Names of the tools that are told at the front."""
    left_out: tuple[str, ...] = ()
    """Types of hosted tools."""

    def text(self, name: str, path: str) -> str:
        """Return what stands where a tool is referred to. Raises ApiError where there is none."""
        if name in self.deferred:
            return self.deferred[name]
        if name in self.others:
            return name
        said = f"Tool reference {name!r} not found in available tools: `{path}`."
        raise refused(said, path, "invalid")


def message_tools(body: PromptBody, model: ServedModel) -> MessageTools:
    """Return the tools of a request. Raises ApiError."""
    own, left_out = _sorted(body.tools or ())
    choice = body.tool_choice or AnthropicToolChoice("auto")
    _check_choice(choice, own, left_out)
    referred = {each.tool_name for each in _references(body.messages)}
    later = _deferred(own, left_out) - (_found_elsewhere(body.messages) | {choice.name}) - referred
    told = [each for each in own if each.name not in later]
    behind = _deferred(told, left_out) & referred
    definitions = [
        FunctionDefinition(each.name, _description(each), each.input_schema, each.strict)
        for each in told
    ]
    allowed = None if choice.name is None else frozenset((choice.name,))
    parallel = not choice.disable_parallel_tool_use and choice.name is None
    places = {each.name: index for index, each in enumerate(body.tools or ())}
    fields = [f"tools[{places[each.name]}].input_schema" for each in told]
    request = tool_request(definitions, fields, MODES[choice.type], allowed, parallel, model)
    shown = {each.name: shown_tool(each) for each in definitions}
    front = {name: text for name, text in shown.items() if name not in behind}
    deferred = {name: shown[name] for name in behind}
    return MessageTools(
        replace(request, shown=tuple(front.values())), deferred, frozenset(front), left_out
    )


def _description(tool: AnthropicTool) -> str | None:
    """Return what a tool is for, and its examples behind that."""
    examples = "\n".join(bytes(each).decode() for each in tool.input_examples or ())
    if not examples:
        return tool.description
    return "\n\n".join(filter(None, (tool.description, f"Examples of input:\n{examples}")))


def _sorted(tools: Sequence[AnthropicTool]) -> tuple[list[AnthropicTool], tuple[str, ...]]:
    """Return the tools that the client describes, and the types of those that Anthropic hosts.

    Raises ApiError.
    """
    own: list[AnthropicTool] = []
    left_out: list[str] = []
    for index, tool in enumerate(tools):
        if tool.type in OWN and not tool.name:
            field = f"tools[{index}].name"
            raise refused(f"`{field}` is required.", field, "missing")
        if tool.type in OWN:
            own.append(tool)
        elif HOSTED.fullmatch(tool.type or ""):
            left_out.append(tool.type or "")
        else:
            field = f"tools[{index}].type"
            raise refused(f'`{field}` must be "custom", or a hosted tool\'s.', field, "invalid")
    return own, tuple(dict.fromkeys(left_out))


def _check_choice(
    choice: AnthropicToolChoice, own: Sequence[AnthropicTool], left_out: Sequence[str]
) -> None:
    if (choice.type == "tool") != (choice.name is not None):
        raise refused("`tool_choice.name` goes with the type tool.", "tool_choice.name", "invalid")
    if choice.type in ("any", "tool") and left_out and not own:
        said = f"`tool_choice` demands a tool; {left_out[0]} is not served here."
        raise refused(said, "tool_choice", "unsupported")


def _deferred(own: Sequence[AnthropicTool], left_out: Sequence[str]) -> set[str]:
    """Return the names of deferred tools: none where a hosted search would have to find them."""
    if any(each.startswith(SEARCHES) for each in left_out):
        return set()
    return {each.name for each in own if each.defer_loading}


def _references(messages: Iterable[AnthropicMessage]) -> Iterator[ToolReference]:
    """Yield what results refer to."""
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            if isinstance(block, ToolResult) and isinstance(block.content, list):
                yield from (each for each in block.content if isinstance(each, ToolReference))


def _found_elsewhere(messages: Iterable[AnthropicMessage]) -> set[str]:
    """Return the names of the tools that searches of another server have found."""
    return {
        each.tool_name
        for message in messages
        if isinstance(message.content, list)
        for block in message.content
        if isinstance(block, FoundToolsBlock)
        for each in block.content.tool_references
    }
