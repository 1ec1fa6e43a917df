"""How a request declares segments: documents, and parts of messages that are marked."""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from draftwerk.api.fields.field_types import BodyText, Name
from draftwerk.speculative.blend.rules import RuleName

DOCUMENTS_MAX = 256
"""Documents of a request at most."""


class BlendSettings(Struct, frozen=True):
    """How declared segments are reused: what is computed again, and how much of it."""

    ratio: Annotated[float, Meta(ge=0, le=1)] | None = None
    rule: RuleName | None = None


BlendBody = bool | BlendSettings


class MessagePart(Struct, frozen=True):
    """A part of a message; one with `blend` is a segment that may be reused."""

    type: Literal["text", "input_text", "output_text"]
    text: BodyText
    blend: BlendBody | None = None


class GivenDocument(Struct, frozen=True):
    """A document, or a module; a title and an id are for templates that show documents."""

    text: BodyText | None = None
    module: Name | None = None
    """In place of a text: the name of one that was given in `modules`."""
    parameters: dict[Name, BodyText] | None = None
    """What stands in the module for {name}."""
    title: BodyText | None = None
    doc_id: BodyText | None = None


Modules = Annotated[dict[Name, BodyText], Meta(max_length=DOCUMENTS_MAX)]
"""Texts by name, for `documents` of this request and of later ones."""
Documents = Annotated[list[BodyText | GivenDocument], Meta(max_length=DOCUMENTS_MAX)]


class GivenPart(Protocol):
    """A part of a message, in any protocol's words."""

    @property
    def text(self) -> str: ...
    @property
    def blend(self) -> BlendBody | None: ...


GivenContent = str | Sequence[GivenPart] | None
