"""The tools of a request, in any protocol's words, and the calls of earlier answers."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from draftwerk.api.requests.tools_schema import (
    ChatTool,
    ChatToolChoice,
    FunctionDefinition,
    Mode,
)
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.replies.argument_schemas import BadSchema, ToolFunction, parameters_of
from draftwerk.speculative.replies.grammar import CallMode
from draftwerk.speculative.replies.schemas.weakened_schemas import weakened
from draftwerk.speculative.requests.client_prompts import ToolCall

SCHEMAS_MAX = 256 * 2**10
"""Bytes of all schemas of one request's tools."""


class ToolRequest(Struct, frozen=True):
    """The tools of a request, in any protocol's words."""

    functions: tuple[ToolFunction, ...] = ()
    """The functions that may be called."""
    fields: tuple[str, ...] = ()
    """The request's field of each one's schema."""
    shown: tuple[str, ...] = ()
    """For the prompt: the tools in JSON, as chat has them."""
    mode: CallMode = "none"
    parallel: bool = False
    weakened: tuple[str, ...] = ()
    """Functions whose schemas are not obeyed in full, and the words that are dropped."""


def chat_tools(
    tools: Sequence[ChatTool] | None,
    choice: Mode | ChatToolChoice | None,
    parallel: bool | None,
    model: ServedModel,
) -> ToolRequest:
    """Return chat's tools and choice. Raises ApiError."""
    definitions = tuple(each.function for each in tools or ())
    mode, allowed, single = _chat_choice(choice)
    several = parallel is not False and not single
    return tool_request(definitions, nested_fields(definitions), mode, allowed, several, model)


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


def nested_fields(definitions: Sequence[FunctionDefinition]) -> list[str]:
    """Return where a request has the schemas of its tools, as chat has them."""
    return [f"tools[{index}].function.parameters" for index in range(len(definitions))]


def tool_request(
    definitions: Sequence[FunctionDefinition],
    fields: Sequence[str],
    mode: CallMode,
    allowed: frozenset[str] | None,
    parallel: bool,
    model: ServedModel,
) -> ToolRequest:
    """Return tools and choice; `fields` are where the request has each one's schema, `allowed` are
    names, None for all.

    Raises ApiError for what contradicts itself, and for what this model cannot do.
    """
    names = [each.name for each in definitions]
    if len(set(names)) < len(names):
        raise refused("`tools` names a function twice.", "tools", "invalid")
    if allowed is not None and (unknown := sorted(allowed - set(names))):
        said = f"`tool_choice` names {unknown[0]!r}, which is not among `tools`."
        raise refused(said, "tool_choice", "invalid")
    if mode == "required" and not definitions:
        raise refused("`tool_choice` needs `tools`.", "tool_choice", "invalid")
    if definitions and model.calls is None:
        why = model.tool_note or "which has no chat template, or is served with --tool-format off"
        sentence = (
            f"`tools` is not supported by this server for this model ({why}); use another model, "
            "or --tool-format."
        )
        raise refused(sentence, "tools", "unsupported")
    functions, weaker = _functions(definitions, fields)
    able = [i for i, name in enumerate(names) if allowed is None or name in allowed]
    shown = tuple(map(shown_tool, definitions))
    of_able = tuple(fields[i] for i in able)
    able_functions = tuple(functions[i] for i in able)
    return ToolRequest(able_functions, of_able, shown, mode, parallel, tuple(filter(None, weaker)))


def _functions(
    definitions: Sequence[FunctionDefinition], fields: Sequence[str]
) -> tuple[list[ToolFunction], list[str]]:
    """Return the functions with their schemas read, and how each is weakened. Raises ApiError."""
    if sum(len(each.schema) for each in definitions) > SCHEMAS_MAX:
        sentence = f"The schemas in `tools` are longer than {SCHEMAS_MAX} bytes together."
        raise refused(sentence, "tools", "invalid")
    read = [_function(*each) for each in zip(definitions, fields, strict=True)]
    return [function for function, _ in read], [weaker for _, weaker in read]


def _function(definition: FunctionDefinition, path: str) -> tuple[ToolFunction, str]:
    """Return a function with its schema read; of one that is not strict, what can be obeyed, and
    what cannot in words."""
    strict = definition.strict is True
    dropped: tuple[str, ...] = ()
    try:
        schema = json.loads(definition.schema)
        if not strict and isinstance(schema, dict):
            schema, dropped = weakened(schema)
        weaker = f"{definition.name} without {', '.join(dropped)}" if dropped else ""
        return ToolFunction(definition.name, parameters_of(schema), strict), weaker
    except BadSchema as error:
        raise refused(f"`{path}` {error}.", path, "invalid") from None
    except (ValueError, RecursionError):
        raise refused(f"`{path}` cannot be read.", path, "invalid") from None


def shown_tool(definition: FunctionDefinition) -> str:
    """Return a tool as chat templates take it; without what the client left out."""
    function: dict[str, Any] = {"name": definition.name}
    if definition.description is not None:
        function["description"] = definition.description
    if definition.schema != b"null":
        function["parameters"] = definition.parameters
    return msgspec.json.encode({"type": "function", "function": function}).decode()


def tool_call(call_id: str, name: str, arguments: object) -> ToolCall:
    """Return a call of an earlier answer, whose arguments may be cut, or no text at all."""
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else msgspec.json.encode(arguments).decode()
    return ToolCall(call_id, name, arguments or "{}")
