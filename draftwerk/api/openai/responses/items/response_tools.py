"""Tools of a response: what the model is told of, and what its calls are called by the client.

Functions of a namespace are functions whose names begin with it; a custom tool is a function of one
text. Tools that OpenAI hosts are left out: an answer goes without them, unless one is demanded.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from draftwerk.api.openai.responses.items.lark_patterns import UndefinedNameError, lark_pattern
from draftwerk.api.requests.tool_request import ToolRequest, tool_request
from draftwerk.api.requests.tools_schema import (
    HOSTED,
    CustomFormat,
    FlatTool,
    FlatToolChoice,
    FlatToolReference,
    FunctionDefinition,
    Mode,
    SpacedTool,
)
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.replies.grammar import CallMode

INPUT = "input"
"""The one argument of a custom tool."""
BEFORE = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
WHOLE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?:(?![dD][89abAB])[0-9a-fA-F]{4}|'
    r"[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"
)
"""Characters of a JSON string that are not cut."""
BETWEEN = "__"
"""Between a namespace and a name."""


class CalledName(Struct, frozen=True):
    """A client's name for a tool."""

    name: str
    namespace: str | None = None
    is_custom: bool = False

    @property
    def shown(self) -> str:
        """The name that the model is told."""
        return self.name if self.namespace is None else self.namespace + BETWEEN + self.name


class OfferedTools(Struct, frozen=True):
    """The tools of a request, namespaces unfolded."""

    definitions: tuple[FunctionDefinition, ...] = ()
    names: tuple[CalledName, ...] = ()
    """One for each definition."""
    fields: tuple[str, ...] = ()
    """Where the request has what each one's arguments must be."""
    left_out: tuple[str, ...] = ()
    """Types of hosted tools."""
    loose: tuple[str, ...] = ()
    """Names of custom tools whose grammar the model is told, and not held to."""

    def called(self, shown: str) -> CalledName:
        """Return what the client calls a tool by the name that the model has for it."""
        return next((each for each in self.names if each.shown == shown), CalledName(shown))


def offered_tools(tools: Sequence[FlatTool] | None) -> OfferedTools:
    """Return a request's tools. Raises ApiError for a type that is none, and for no name."""
    definitions: list[FunctionDefinition] = []
    names: list[CalledName] = []
    fields: list[str] = []
    left_out: list[str] = []
    loose: list[str] = []
    for tool, namespace, path in _unfolded(tools):
        if tool.type in HOSTED:
            left_out.append(tool.type)
            continue
        if tool.type not in ("function", "custom"):
            said = f'`{path}.type` must be one of "custom", "function", "namespace"'
            raise refused(f"{said}, or a hosted tool's.", f"{path}.type", "invalid")
        if tool.name is None:
            raise refused(f"`{path}.name` is required.", f"{path}.name", "missing")
        name = CalledName(tool.name, namespace, tool.type == "custom")
        names.append(name)
        fields.append(f"{path}.{'format.definition' if name.is_custom else 'parameters'}")
        pattern = _pattern(tool, path)
        if pattern is None:
            loose.append(tool.name)
        definitions.append(_definition(tool, name.shown, pattern))
    once = tuple(dict.fromkeys(left_out))
    return OfferedTools(tuple(definitions), tuple(names), tuple(fields), once, tuple(loose))


def _unfolded(
    tools: Sequence[FlatTool] | None,
) -> Iterable[tuple[SpacedTool, str | None, str]]:
    """Yield tools, each with its namespace and where the request has it."""
    for index, tool in enumerate(tools or ()):
        path = f"tools[{index}]"
        if tool.type != "namespace":
            yield tool, None, path
        elif tool.name is None:
            raise refused(f"`{path}.name` is required.", f"{path}.name", "missing")
        else:
            inner = enumerate(tool.tools or ())
            yield from ((each, tool.name, f"{path}.tools[{at}]") for at, each in inner)


def _pattern(tool: SpacedTool, path: str) -> str | None:
    """Return what a custom tool's text must be; empty for any text, None for a grammar that is told
    and not enforced. Raises ApiError."""
    form = tool.format
    if tool.type == "function" or form is None or form.type != "grammar":
        return ""
    if form.syntax is None or form.definition is None:
        field = f"{path}.format.{'definition' if form.syntax else 'syntax'}"
        raise refused(f"`{field}` is required.", field, "missing")
    if form.syntax == "regex":
        return f"^(?:{form.definition})$"
    try:
        return lark_pattern(form.definition)
    except UndefinedNameError as error:
        field = f"{path}.format.definition"
        raise refused(f"`{field}` {error}.", field, "invalid") from None


def _definition(tool: SpacedTool, name: str, pattern: str | None) -> FunctionDefinition:
    if tool.type == "function":
        return FunctionDefinition(name, tool.description, tool.parameters, tool.strict)
    text = {"type": "string"} | ({"pattern": pattern} if pattern else {})
    form = tool.format or CustomFormat()
    description = tool.description or ""
    if form.syntax == "lark":
        description += f"\n\nIts input follows this grammar:\n{form.definition}"
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT]}
    parameters = msgspec.Raw(json.dumps(schema, ensure_ascii=False).encode())
    return FunctionDefinition(name, description or None, parameters, strict=form.syntax == "regex")


def response_tools(
    offered: OfferedTools,
    choice: Mode | FlatToolChoice | None,
    parallel: bool | None,
    model: ServedModel,
) -> ToolRequest:
    """Return Responses' tools and choice. Raises ApiError."""
    mode, allowed, single = _choice(offered, choice)
    several = parallel is not False and not single
    return tool_request(offered.definitions, offered.fields, mode, allowed, several, model)


def _choice(
    offered: OfferedTools, choice: Mode | FlatToolChoice | None
) -> tuple[CallMode, frozenset[str] | None, bool]:
    if choice is None or isinstance(choice, str):
        if choice == "required" and not offered.definitions and offered.left_out:
            said = f"`tool_choice` needs a tool; {offered.left_out[0]} is not served here."
            raise refused(said, "tool_choice", "unsupported")
        return choice or "auto", None, False
    if choice.type == "allowed_tools":
        if choice.tools is None:
            raise refused("`tool_choice.tools` is required.", "tool_choice", "missing")
        served = [each for each in choice.tools if each.type not in HOSTED]
        allowed = frozenset(_shown(offered, each) for each in served)
        return choice.mode or "auto", allowed, False
    if choice.type in HOSTED:
        said = f"`tool_choice` demands {choice.type}, which is not served here."
        raise refused(said, "tool_choice", "unsupported")
    if choice.type not in ("function", "custom"):
        said = '`tool_choice.type` must be "allowed_tools", "custom" or "function".'
        raise refused(said, "tool_choice.type", "invalid")
    if choice.name is None:
        raise refused("`tool_choice.name` is required.", "tool_choice", "missing")
    return "required", frozenset((_shown(offered, choice),)), True


def _shown(offered: OfferedTools, named: FlatToolChoice | FlatToolReference) -> str:
    """Return the name that the model has for a tool; its namespace may be left out."""
    name = named.name or ""
    if named.namespace is not None:
        return CalledName(name, named.namespace).shown
    shown = {each.shown for each in offered.names}
    alike = [each.shown for each in offered.names if each.name == name]
    return name if name in shown or len(alike) != 1 else alike[0]


def custom_arguments(text: str) -> str:
    """Return the arguments of a custom tool's call, as the model writes them."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


@dataclass(slots=True)
class CustomInput:
    """The text of a custom tool's call, read as its arguments come."""

    unread: str = ""
    """The part of the arguments that was not read yet."""
    is_begun: bool = False

    def add(self, arguments: str) -> str:
        """Take in more of the arguments; returns what they add to the text."""
        self.unread += arguments
        start = None if self.is_begun else BEFORE.match(self.unread)
        if start is not None:
            self.is_begun, self.unread = True, self.unread[start.end() :]
        body = WHOLE.match(self.unread) if self.is_begun else None
        if body is None:
            return ""
        self.unread = self.unread[body.end() :]
        return json.loads(f'"{body[0]}"', strict=False)


def custom_input(arguments: str) -> str:
    """Return the text of a custom tool's call, as far as its arguments have come."""
    return CustomInput().add(arguments)
