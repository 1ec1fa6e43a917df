"""What a request says of tools, in any protocol's words, and the calls of earlier answers."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from draftwerk.actors.client_prompts import ToolCall
from draftwerk.api.core.errors import refused
from draftwerk.api.replying.tools_schema import (
    CalledFunction,
    ChatTool,
    ChatToolChoice,
    FlatTool,
    FlatToolChoice,
    FunctionDefinition,
    Mode,
)
from draftwerk.speculative.replies.grammar import CallMode


class ToolRequest(Struct, frozen=True):
    """What a request says of tools, in either protocol's words."""

    functions: tuple[FunctionDefinition, ...] = ()
    shown: tuple[str, ...] = ()
    """For the prompt: the tools in JSON, as chat has them."""
    mode: CallMode = "auto"
    allowed: frozenset[str] | None = None
    """Names of the functions that may be called; None for all."""
    parallel: bool = True
    path: str = "tools"


def chat_wish(
    tools: Sequence[ChatTool] | None,
    choice: Mode | ChatToolChoice | None,
    parallel: bool | None,
) -> ToolRequest:
    """Return chat's tools and choice."""
    definitions = tuple(each.function for each in tools or ())
    mode, allowed, single = _chat_choice(choice)
    return tool_wish(definitions, mode, allowed, parallel is not False and not single)


def _chat_choice(
    choice: Mode | ChatToolChoice | None,
) -> tuple[CallMode, frozenset[str] | None, bool]:
    if choice is None or isinstance(choice, str):
        return choice or "auto", None, False
    if choice.type == "function":
        if choice.function is None:
            raise refused("`tool_choice.function` is required.", "tool_choice", "missing")
        return "required", frozenset((choice.function.name,)), True
    some = choice.allowed_tools
    if some is None:
        raise refused("`tool_choice.allowed_tools` is required.", "tool_choice", "missing")
    return some.mode, frozenset(each.function.name for each in some.tools), False


def flat_wish(
    tools: Sequence[FlatTool] | None,
    choice: Mode | FlatToolChoice | None,
    parallel: bool | None,
) -> ToolRequest:
    """Return Responses' tools and choice."""
    mode, allowed, single = _flat_choice(choice)
    return tool_wish(tuple(tools or ()), mode, allowed, parallel is not False and not single)


def _flat_choice(
    choice: Mode | FlatToolChoice | None,
) -> tuple[CallMode, frozenset[str] | None, bool]:
    if choice is None or isinstance(choice, str):
        return choice or "auto", None, False
    if choice.type == "function":
        if choice.name is None:
            raise refused("`tool_choice.name` is required.", "tool_choice", "missing")
        return "required", frozenset((choice.name,)), True
    if choice.tools is None:
        raise refused("`tool_choice.tools` is required.", "tool_choice", "missing")
    return choice.mode or "auto", frozenset(each.name for each in choice.tools), False


def tool_wish(
    definitions: tuple[FunctionDefinition, ...],
    mode: CallMode,
    allowed: frozenset[str] | None,
    parallel: bool,
) -> ToolRequest:
    """Return tools and choice; refuses those that contradict each other."""
    names = [each.name for each in definitions]
    if len(set(names)) < len(names):
        raise refused("`tools` names a function twice.", "tools", "invalid")
    if allowed is not None and (unknown := sorted(allowed - set(names))):
        said = f"`tool_choice` names {unknown[0]!r}, which is not among `tools`."
        raise refused(said, "tool_choice", "invalid")
    if mode == "required" and not definitions:
        raise refused("`tool_choice` needs `tools`.", "tool_choice", "invalid")
    shown = tuple(_shown(each) for each in definitions)
    return ToolRequest(definitions, shown, mode, allowed, parallel)


def _shown(definition: FunctionDefinition) -> str:
    """Return a tool as chat templates take it; without what the client left out."""
    function: dict[str, Any] = {"name": definition.name}
    if definition.description is not None:
        function["description"] = definition.description
    if definition.schema != b"null":
        function["parameters"] = definition.parameters
    return msgspec.json.encode({"type": "function", "function": function}).decode()


def tool_call(call_id: str, function: CalledFunction, path: str) -> ToolCall:
    """Return a call of an earlier answer; its arguments must be what a call's are."""
    try:
        found = msgspec.json.decode(function.arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        said = f"`{path}.arguments` must be one object in JSON."
        raise refused(said, f"{path}.arguments", "invalid") from None
    del found
    return ToolCall(call_id, function.name, function.arguments or "{}")


def call_id_of(reply_id: str, choice: int, index: int) -> str:
    """Return the id of a generated call: letters and digits in its last nine places."""
    digest = sha256(f"{reply_id} {choice} {index}".encode()).hexdigest()
    return "call_" + digest[:24]
