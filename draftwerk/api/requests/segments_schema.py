"""How a request declares segments: documents, and parts of messages that are marked."""

from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from draftwerk.api.requests.field_rows import knows, no_effect
from draftwerk.api.requests.field_types import BodyText, Name
from draftwerk.speculative.requests.declared_segments import RuleName

DOCUMENTS_MAX = 256
"""Documents of a request at most."""


class BlendSettings(Struct, frozen=True):
    """How declared segments are reused: what is computed again, and how much of it."""

    ratio: Annotated[float, Meta(ge=0, le=1)] | None = None
    rule: RuleName | None = None


BlendBody = bool | BlendSettings


@knows(no_effect("prompt_cache_breakpoint", why="prefixes are found without it"))
class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """A part of a message; one with `blend` is a segment that may be reused."""

    text: BodyText
    blend: BlendBody | None = None


class PromptPart(TextPart, frozen=True, tag="input_text"):
    """The same, as Responses has it."""


@knows(no_effect("annotations", "logprobs", why="they describe the text"))
class AnswerPart(TextPart, frozen=True, tag="output_text"):
    """A part of an earlier answer."""


class RefusalPart(TextPart, frozen=True, tag="refusal"):
    """An earlier answer that was a refusal."""

    text: BodyText = msgspec.field(name="refusal")


MessagePart = TextPart | PromptPart | AnswerPart | RefusalPart


class GivenDocument(Struct, frozen=True):
    """A document, or a module; a title and an id are for templates that show documents."""

    text: BodyText | None = None
    module: Name | None = None
    """In place of a text: the name of one that was given in `modules`."""
    parameters: dict[Name, BodyText] | None = None
    """The values that stand in the module for {name}."""
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
