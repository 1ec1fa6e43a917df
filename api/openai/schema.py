"""What clients may send: every field with its bounds in the type.

All fields may be null, which means absent. Fields not named here are ignored; a field of type
`Refused` is known and not served, so anything but its harmless values is an error.
"""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

BEAM_WIDTH_MAX = 16
BIAS_MAX = 1024
CHOICES_MAX = 16
"""As many as the engine takes for one prompt."""
GRAMMAR_MAX = 64 * 2**10
"""Characters of a schema, regular expression or grammar."""
MESSAGES_MAX = 4096
PROMPTS_MAX = 256
RAW_HARMLESS_MAX = 64
SAYS_NOTHING = (b"", b"null", b"[]", b"{}", b"false")
STOP_LENGTH_MAX = 256
TEXT_MAX = 2**20
TOKENS_MAX = 2**18
TOKEN_ID_MAX = 2**31 - 1

Text = Annotated[str, Meta(max_length=TEXT_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Label = Annotated[str, Meta(max_length=1024)]
Salt = Annotated[str, Meta(max_length=256)]
TokenId = Annotated[int, Meta(ge=0, le=TOKEN_ID_MAX)]
TokenIds = Annotated[tuple[TokenId, ...], Meta(max_length=TOKENS_MAX)]
TokenCount = Annotated[int, Meta(ge=1, le=TOKENS_MAX)]
StopString = Annotated[str, Meta(min_length=1, max_length=STOP_LENGTH_MAX)]
Stop = StopString | Annotated[list[StopString], Meta(max_length=4)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=BIAS_MAX)]
Include = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=8)]
Refused = msgspec.Raw
UNSENT = msgspec.Raw()
"""The one value of every refused field that a body did not have; `is` tells it from the rest."""
NOTHING = msgspec.field(default_factory=lambda: UNSENT)


class TextPart(Struct, frozen=True):
    type: Literal["text", "input_text", "output_text"]
    text: Text


Content = Text | Annotated[list[TextPart], Meta(max_length=MESSAGES_MAX)]


class Message(Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: Content | None = None
    name: Refused = NOTHING
    """No chat template that we know of shows it to the model."""
    refusal: Refused = NOTHING
    audio: Refused = NOTHING
    tool_calls: Refused = NOTHING
    function_call: Refused = NOTHING

    harmless: ClassVar[dict[str, tuple[bytes, ...]]] = {"name": (b'""',), "refusal": (b'""',)}


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None
    """Only false is served: padding would be bytes for nothing."""


class Prediction(Struct, frozen=True):
    """The text the client expects; it is drafted from, and costs nothing when wrong."""

    type: Literal["content"]
    content: Content


class SpeculationBody(Struct, frozen=True):
    """How to draft for this request; the text does not depend on it."""

    enabled: bool | None = None
    methods: Annotated[list[Name], Meta(max_length=16)] | None = None
    draft_max: Annotated[int, Meta(ge=0, le=64)] | None = None


GrammarText = Annotated[str, Meta(max_length=GRAMMAR_MAX)]


class JsonSchema(Struct, frozen=True):
    """A schema that the text is held to, whatever `strict` says."""

    schema: msgspec.Raw
    name: Name | None = None
    strict: bool | None = None
    description: Text | None = None


FormatType = Literal["text", "json_object", "json_schema", "regex", "grammar"]


class ResponseFormat(Struct, frozen=True):
    """What the text must be; `regex` and `grammar` (in Lark's notation) are ours."""

    type: FormatType
    json_schema: JsonSchema | None = None
    pattern: GrammarText | None = None
    grammar: GrammarText | None = None


class FlatFormat(Struct, frozen=True, omit_defaults=True):
    """The same, as Responses has it: the schema's fields beside its type."""

    type: FormatType
    schema: msgspec.Raw | UnsetType = UNSET
    name: Name | None = None
    strict: bool | None = None
    description: Text | None = None
    pattern: GrammarText | None = None
    grammar: GrammarText | None = None


class SamplingBody(Struct, frozen=True, kw_only=True):
    """The fields that every generating endpoint shares."""

    model: Name | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=TOKEN_ID_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    logit_bias: Bias | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=TOKENS_MAX)] | None = None
    ignore_eos: bool | None = None
    prediction: Prediction | None = None
    speculation: SpeculationBody | None = None
    include: Include | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    """Like the two before it, of use to whoever keeps the log: prefixes are found without it."""
    parallel_tool_calls: bool | None = None
    """Either is kept: there are no tools."""
    cache_salt: Salt | None = None
    beam_width: Annotated[int, Meta(ge=1, le=BEAM_WIDTH_MAX)] | None = None
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = None
    early_stopping: bool | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None

    guided_choice: Refused = NOTHING
    guided_grammar: Refused = NOTHING
    guided_json: Refused = NOTHING
    guided_regex: Refused = NOTHING
    structured_outputs: Refused = NOTHING
    bad_words: Refused = NOTHING
    stop_token_ids: Refused = NOTHING
    prompt_logprobs: Refused = NOTHING
    chat_template: Refused = NOTHING
    chat_template_kwargs: Refused = NOTHING
    allowed_token_ids: Refused = NOTHING
    include_stop_str_in_output: Refused = NOTHING
    logits_processors: Refused = NOTHING
    moderation: Refused = NOTHING
    prompt_cache_options: Refused = NOTHING
    prompt_cache_retention: Refused = NOTHING
    service_tier: Refused = NOTHING
    skip_special_tokens: Refused = NOTHING
    truncate_prompt_tokens: Refused = NOTHING
    typical_p: Refused = NOTHING
    use_beam_search: Refused = NOTHING

    harmless: ClassVar[dict[str, tuple[bytes, ...]]] = {
        "prompt_cache_retention": (b'"in_memory"', b'"in-memory"'),
        "service_tier": (b'"auto"', b'"default"'),
        "skip_special_tokens": (b"true",),
        "typical_p": (b"1", b"1.0"),
    }
    """Values of refused fields that ask for what happens anyway."""


class OpenAIBody(SamplingBody, frozen=True, kw_only=True):
    """The fields that chat and completions share and Responses does not."""

    stream_options: StreamOptions | None = None
    max_tokens: TokenCount | None = None
    n: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    response_format: ResponseFormat | None = None
    max_output_tokens: Refused = NOTHING
    """Responses' name; a limit that is not obeyed would surprise."""


class ChatBody(OpenAIBody, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Refused = NOTHING
    tool_choice: Refused = NOTHING
    functions: Refused = NOTHING
    function_call: Refused = NOTHING
    audio: Refused = NOTHING
    modalities: Refused = NOTHING
    web_search_options: Refused = NOTHING
    add_generation_prompt: Refused = NOTHING
    best_of: Refused = NOTHING
    continue_final_message: Refused = NOTHING
    documents: Refused = NOTHING
    echo: Refused = NOTHING
    metadata: Refused = NOTHING
    """It is for what is stored, and nothing is."""
    reasoning_effort: Refused = NOTHING
    store: Refused = NOTHING
    verbosity: Refused = NOTHING

    harmless: ClassVar[dict[str, tuple[bytes, ...]]] = {
        **OpenAIBody.harmless,
        "add_generation_prompt": (b"true",),
        "best_of": (b"1",),
        "reasoning_effort": (b'"none"',),
        "verbosity": (b'"medium"',),
        "tool_choice": (b'"none"', b'"auto"'),
        "function_call": (b'"none"', b'"auto"'),
        "modalities": (b'["text"]',),
    }


class CompletionBody(OpenAIBody, frozen=True, kw_only=True):
    """`POST /v1/completions`."""

    prompt: Text | Annotated[list[Text | TokenId | TokenIds], Meta(max_length=TOKENS_MAX)]
    best_of: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    suffix: Refused = NOTHING
    add_special_tokens: Refused = NOTHING
    max_completion_tokens: Refused = NOTHING
    top_logprobs: Refused = NOTHING

    harmless: ClassVar[dict[str, tuple[bytes, ...]]] = {
        **OpenAIBody.harmless,
        "add_special_tokens": (b"true",),
        "suffix": (b'""',),
        "top_logprobs": (b"0",),
    }


class TokenizeBody(Struct, frozen=True, kw_only=True):
    """`POST /tokenize`: a prompt or a conversation."""

    model: Name | None = None
    prompt: Text | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)] | None = None
    add_generation_prompt: Refused = NOTHING
    add_special_tokens: Refused = NOTHING
    return_token_strs: Refused = NOTHING
    tools: Refused = NOTHING

    harmless: ClassVar[dict[str, tuple[bytes, ...]]] = {
        "add_generation_prompt": (b"true",),
        "add_special_tokens": (b"true",),
    }


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    """`POST /detokenize`."""

    model: Name | None = None
    tokens: TokenIds


def refused_fields(body: Struct) -> Iterable[str]:
    """Name the fields that are known, not served, and asked for."""
    for name in _raw_fields(type(body)):
        value = getattr(body, name)
        if value is UNSENT:
            continue
        harmless: dict[str, tuple[bytes, ...]] = getattr(body, "harmless", {})
        if not _says_nothing(bytes(value), harmless.get(name)):
            yield name


@cache
def _raw_fields(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(each.name for each in msgspec.structs.fields(kind) if each.type is Refused)


def _says_nothing(raw: bytes, harmless: tuple[bytes, ...] | None) -> bool:
    if len(raw) > RAW_HARMLESS_MAX:
        return False
    compact = msgspec.json.format(raw, indent=-1) if raw else b""
    if compact == b"false" and b"true" in (harmless or ()):
        return False  # a switch that is on
    return compact in SAYS_NOTHING or compact in (harmless or ())
