"""Fields of clients about tools: chat's nested form, and Responses' flat one."""

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.requests.field_rows import knows, no_effect, unsupported
from draftwerk.api.requests.field_types import BodyText

TOOLS_MAX = 128
NAME_PATTERN = "^[a-zA-Z0-9_.-]{1,64}$"
FunctionName = Annotated[str, Meta(pattern=NAME_PATTERN)]
CallId = Annotated[str, Meta(min_length=1, max_length=256)]
Mode = Literal["auto", "none", "required"]


@knows(no_effect("strict", why="arguments always keep to their schema"))
class FunctionDefinition(Struct, frozen=True):
    """A function that the model may call."""

    name: FunctionName
    description: BodyText | None = None
    parameters: msgspec.Raw | UnsetType = UNSET
    """The JSON schema of its arguments; without it, it takes none."""
    strict: bool | None = None

    @property
    def schema(self) -> bytes:
        """The schema in JSON; `null` without one."""
        return b"null" if self.parameters is UNSET else bytes(self.parameters)


CUSTOM = unsupported("custom", use="/v1/responses")
"""Tools that take a text, which chat has no calls of here."""


class ChatTool(Struct, frozen=True):
    type: Literal["function"]
    function: FunctionDefinition

    kinds: ClassVar[Collection[str]] = CUSTOM


class CustomFormat(Struct, frozen=True):
    """The form that a custom tool's input must have."""

    type: Literal["text", "grammar"] = "text"
    syntax: Literal["lark", "regex"] | None = None
    definition: BodyText | None = None


HOSTED = frozenset(
    (
        *("apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview"),
        *("file_search", "image_generation", "local_shell", "mcp", "programmatic_tool_calling"),
        *("shell", "tool_search", "web_search", "web_search_2025_08_26", "web_search_preview"),
        "web_search_preview_2025_03_11",
    )
)
"""Types of tools that OpenAI runs itself, or has models trained for; the model is not told of
them."""


@knows(
    no_effect("strict", why="arguments always keep to their schema"),
    no_effect("defer_loading", why="every function is shown"),
    no_effect("allowed_callers", "async", "output_schema", why="the client runs what is called"),
)
class SpacedTool(Struct, frozen=True):
    """A function or a custom tool as Responses has it."""

    type: Annotated[str, Meta(max_length=64)]
    name: FunctionName | None = None
    description: BodyText | None = None
    parameters: msgspec.Raw | UnsetType = UNSET
    strict: bool | None = None
    format: CustomFormat | None = None
    """The format of a custom tool's input."""


class FlatTool(SpacedTool, frozen=True):
    """A tool as Responses has it: a function, a custom one, a namespace of both, or a hosted one,
    which the model is not told of."""

    tools: Annotated[list[SpacedTool], Meta(max_length=TOOLS_MAX)] | None = None
    """The tools of a namespace."""

    kinds: ClassVar[Collection[str]] = HOSTED


class NamedFunction(Struct, frozen=True):
    name: FunctionName


class ChatToolReference(Struct, frozen=True):
    type: Literal["function"]
    function: NamedFunction

    kinds: ClassVar[Collection[str]] = CUSTOM


class AllowedTools(Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[ChatToolReference], Meta(min_length=1, max_length=TOOLS_MAX)]


class ChatToolChoice(Struct, frozen=True):
    """One function that is called, or some that may be."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None

    kinds: ClassVar[Collection[str]] = CUSTOM


@knows(no_effect("server_label", why="no server's tools are served"))
class FlatToolReference(Struct, frozen=True, omit_defaults=True):
    type: Annotated[str, Meta(max_length=64)]
    name: FunctionName | None = None
    namespace: FunctionName | None = None

    kinds: ClassVar[Collection[str]] = HOSTED


@knows(no_effect("server_label", why="no server's tools are served"))
class FlatToolChoice(Struct, frozen=True, omit_defaults=True):
    """One tool that is called, or some that may be."""

    type: Annotated[str, Meta(max_length=64)]
    name: FunctionName | None = None
    namespace: FunctionName | None = None
    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list[FlatToolReference], Meta(min_length=1, max_length=TOOLS_MAX)] | None = (
        None
    )


ChatTools = Annotated[list[ChatTool], Meta(max_length=TOOLS_MAX)]
FlatTools = Annotated[list[FlatTool], Meta(max_length=TOOLS_MAX)]


class CalledFunction(Struct, frozen=True):
    name: FunctionName
    arguments: BodyText
    """One object in JSON."""


class SentFunction(Struct, frozen=True):
    """The function of an earlier call."""

    name: FunctionName
    arguments: Any = ""
    """One object in JSON, as a text; anything else is taken for what was cut."""


class MessageCall(Struct, frozen=True):
    """A call in an earlier answer, as it came."""

    id: CallId
    function: SentFunction
    type: Literal["function"] | None = None

    kinds: ClassVar[Collection[str]] = CUSTOM
