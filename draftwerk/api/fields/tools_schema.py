"""What clients may send about tools: chat's nested form, and Responses' flat one."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.fields.field_rows import knows, no_effect
from draftwerk.api.fields.field_types import BodyText

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


class ChatTool(Struct, frozen=True):
    type: Literal["function"]
    function: FunctionDefinition


class FlatTool(FunctionDefinition, frozen=True, kw_only=True):
    """The same, as Responses has it."""

    type: Literal["function"]


class NamedFunction(Struct, frozen=True):
    name: FunctionName


class ChatToolReference(Struct, frozen=True):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[ChatToolReference], Meta(min_length=1, max_length=TOOLS_MAX)]


class ChatToolChoice(Struct, frozen=True):
    """One function that is called, or some that may be."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None


class FlatToolReference(Struct, frozen=True):
    type: Literal["function"]
    name: FunctionName


class FlatToolChoice(Struct, frozen=True, omit_defaults=True):
    """One function that is called, or some that may be."""

    type: Literal["function", "allowed_tools"]
    name: FunctionName | None = None
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
