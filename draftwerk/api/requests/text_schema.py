"""Fields of clients about the text: its form, its words, its end."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.requests.field_rows import OTHERS, knows
from draftwerk.api.requests.field_types import (
    BAD_WORDS_MAX,
    BIAS_MAX,
    CHOICE_WORDS_MAX,
    GRAMMAR_MAX,
    STOP_TOKENS_MAX,
    TOKENS_MAX,
    BadWord,
    BodyText,
    Name,
    TokenId,
)
from draftwerk.speculative.parameters.fields import SamplingFields

GrammarText = Annotated[str, Meta(max_length=GRAMMAR_MAX)]


class JsonSchema(Struct, frozen=True):
    """A schema that the text follows, whatever the value of `strict`."""

    schema: msgspec.Raw
    name: Name | None = None
    strict: bool | None = None
    description: BodyText | None = None


Choices = Annotated[list[BodyText], Meta(min_length=1, max_length=CHOICE_WORDS_MAX)]


class StructuredOutputs(Struct, frozen=True):
    """vLLM's way to say what the text must be: one of these."""

    json: msgspec.Raw | UnsetType = UNSET
    json_object: bool | None = None
    regex: GrammarText | None = None
    choice: Choices | None = None
    grammar: GrammarText | None = None


FormatType = Literal["text", "json_object", "json_schema", "regex", "grammar"]


class ResponseFormat(Struct, frozen=True):
    """The form that the text must have; `regex` and `grammar` (in Lark's notation or GBNF) are
    ours."""

    type: FormatType
    json_schema: JsonSchema | None = None
    pattern: GrammarText | None = None
    grammar: GrammarText | None = None
    schema: msgspec.Raw | UnsetType = UNSET
    """llama.cpp's place for it, with the types json_object and json_schema."""


class FlatFormat(Struct, frozen=True, omit_defaults=True):
    """The same, as Responses has it: the schema's fields beside its type."""

    type: FormatType
    schema: msgspec.Raw | UnsetType = UNSET
    name: Name | None = None
    strict: bool | None = None
    description: BodyText | None = None
    pattern: GrammarText | None = None
    grammar: GrammarText | None = None


@knows({name: row for name, row in OTHERS.items() if name != "ebnf"})
class TextFields(SamplingFields, frozen=True, kw_only=True):
    """The fields beside a format that say what the text must be, and where it may end."""

    min_tokens: Annotated[int, Meta(ge=0, le=TOKENS_MAX)] | None = None
    ignore_eos: bool | None = None

    guided_choice: Choices | None = None
    guided_grammar: GrammarText | None = None
    guided_json: msgspec.Raw | UnsetType = UNSET
    guided_regex: GrammarText | None = None
    structured_outputs: StructuredOutputs | None = None
    """vLLM's names for what `response_format` is."""
    grammar: GrammarText | None = None
    json_schema: msgspec.Raw | UnsetType = UNSET
    regex: GrammarText | None = None
    ebnf: GrammarText | None = None
    """llama.cpp's and SGLang's names for it."""
    bad_words: Annotated[list[BadWord], Meta(max_length=BAD_WORDS_MAX)] | None = None
    """Words that the text does not contain."""
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=BIAS_MAX)] | None = (
        None
    )
    """The text is of these tokens alone."""
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=STOP_TOKENS_MAX)] | None = None
    """Tokens that end the text, besides the model's own; they are no part of it."""
