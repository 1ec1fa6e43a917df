"""Requests to `/api/chat`, `/api/generate` and `/api/show`: Ollama's API.

Fields not named here are ignored, as elsewhere; so are options, which a header then names.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.requests.field_rows import CHAT, OTHERS, knows, no_effect, unsupported
from draftwerk.api.requests.field_types import (
    MESSAGES_MAX,
    STOP_LENGTH_MAX,
    TOKENS_MAX,
    BodyText,
    Name,
    Salt,
    SpeculationBody,
    StopString,
    TokenIds,
)
from draftwerk.api.requests.prompts.pooling_fields import INPUTS_MAX, Dimensions
from draftwerk.api.requests.segments_schema import BlendBody, Documents, Modules
from draftwerk.api.requests.tools_schema import (
    TOOLS_MAX,
    CallId,
    FunctionDefinition,
    FunctionName,
)
from draftwerk.speculative.parameters.bounds import RepetitionPenalty
from draftwerk.speculative.parameters.fields import SamplingFields

STOPS_MAX = 16
Think = bool | Literal["low", "medium", "high", "max"]
KeepAlive = str | int | float


@knows(
    OTHERS,
    unsupported("penalize_newline", unless=(b"true",)),
    unsupported("vocab_only"),
    unsupported("max_new_tokens", use="`num_predict`"),
    no_effect("mirostat_eta", "mirostat_tau", why="`mirostat` is refused"),
    no_effect("num_ctx", why="the context is the one that the server was started with"),
    no_effect("num_keep", why="nothing is shifted out of a full context"),
    no_effect(
        *("numa", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock"),
        *("low_vram", "f16_kv", "logits_all", "embedding_only"),
        why="the settings of `draftwerk serve` say how a text is computed",
    ),
)
class OllamaOptions(SamplingFields, frozen=True, kw_only=True):
    """How a text is drawn, and where it ends; null is Ollama's default."""

    repetition_penalty: RepetitionPenalty | None = msgspec.field(
        default=None, name="repeat_penalty"
    )
    num_predict: Annotated[int, Meta(le=TOKENS_MAX)] | None = None
    """A bound: a text ends earlier where the context does. Below 1 that alone bounds it."""
    num_ctx: Annotated[int, Meta(ge=1)] | None = None
    """Nothing is done with it: the context is the one that the server was started with."""
    stop: (
        Annotated[str, Meta(max_length=STOP_LENGTH_MAX)]
        | Annotated[list[StopString], Meta(max_length=STOPS_MAX)]
        | None
    ) = None
    repeat_last_n: Annotated[int, Meta(ge=-1, le=TOKENS_MAX)] | None = None
    """With 0 there are no penalties; otherwise they look at all of the text."""
    mirostat_eta: float | None = None
    mirostat_tau: float | None = None
    num_keep: int | None = None
    numa: bool | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    num_thread: int | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    embedding_only: bool | None = None


class SentOptions(Struct, frozen=True):
    """A body's options by name, those that are not known too."""

    options: dict[str, msgspec.Raw] | None = None


class OllamaCalled(Struct, frozen=True):
    """A function with the arguments that it is called with."""

    name: FunctionName
    arguments: dict[str, Any]
    index: int | None = None


class OllamaCall(Struct, frozen=True):
    function: OllamaCalled
    id: CallId | None = None
    type: Literal["function"] | None = None


@knows(unsupported("images"))
class OllamaMessage(Struct, frozen=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: BodyText | None = None
    thinking: BodyText | None = None
    """The reasoning of an assistant's message, for templates that show it."""
    tool_calls: Annotated[list[OllamaCall], Meta(max_length=TOOLS_MAX)] | None = None
    tool_name: FunctionName | None = None
    """The function that a tool's message answers; without it, the first call without a result."""
    tool_call_id: CallId | None = None
    token_ids: TokenIds | None = None
    """The tokens that an assistant's message was generated as, where they are known; ours."""


class OllamaTool(Struct, frozen=True):
    function: FunctionDefinition
    type: Literal["function"] = "function"


@knows(
    OTHERS,
    unsupported("logprobs", use=CHAT),
    unsupported("top_logprobs", use=CHAT, unless=(b"0",)),
    unsupported("truncate", use="/v1/responses with `truncation`"),
    unsupported("shift"),
    no_effect("keep_alive", why="a server's only model stays loaded"),
)
class OllamaBody(Struct, frozen=True, kw_only=True):
    """Fields that chat and generate share."""

    model: Name
    stream: bool | None = None
    """On unless it is false."""
    format: msgspec.Raw | UnsetType = UNSET
    """`"json"`, or a schema."""
    options: OllamaOptions | None = None
    think: Think | None = None
    keep_alive: KeepAlive | None = None
    speculation: SpeculationBody | None = None
    """Ours."""
    cache_salt: Salt | None = None
    """Ours."""
    documents: Documents | None = None
    """Texts at the beginning of the last user's message; ours."""
    modules: Modules | None = None
    """Texts by name, for documents of this request and later ones; ours."""
    blend: BlendBody | None = None
    """Whether documents are segments that may be reused: then the text is approximate; ours."""


class OllamaChatBody(OllamaBody, frozen=True, kw_only=True):
    """`POST /api/chat`."""

    messages: Annotated[list[OllamaMessage], Meta(max_length=MESSAGES_MAX)] = msgspec.field(
        default_factory=list[OllamaMessage]
    )
    """None: whether the model is there."""
    tools: Annotated[list[OllamaTool], Meta(max_length=TOOLS_MAX)] | None = None


@knows(
    unsupported("images"),
    unsupported("template", use="`raw`", unless=(b'""',)),
    unsupported("context", use="/api/chat with `messages`"),
    unsupported("width", "height", "steps"),
)
class GenerateBody(OllamaBody, frozen=True, kw_only=True):
    """`POST /api/generate`."""

    prompt: BodyText | None = None
    """Empty: whether the model is there."""
    system: BodyText | None = None
    suffix: BodyText | None = None
    """The text behind the one that is asked for, where the vocabulary has tokens for that."""
    raw: bool | None = None
    """Whether the prompt is the model's text as it stands, without a chat template."""


class EmbedOptions(Struct, frozen=True):
    """Options of a request that draws nothing: none of them changes a vector."""


@knows(
    no_effect("keep_alive", why="a server's only model stays loaded"),
    no_effect("options", why="no option changes a vector"),
)
class EmbeddingFields(Struct, frozen=True, kw_only=True):
    """The fields of both of Ollama's addresses for vectors."""

    model: Name
    options: EmbedOptions | None = None
    keep_alive: KeepAlive | None = None


class EmbedBody(EmbeddingFields, frozen=True, kw_only=True):
    """`POST /api/embed`."""

    input: BodyText | Annotated[list[BodyText], Meta(max_length=INPUTS_MAX)]
    truncate: bool | None = None
    """Whether a text that is too long is cut; on unless it is false."""
    dimensions: Dimensions | None = None


class EmbeddingsBody(EmbeddingFields, frozen=True, kw_only=True):
    """`POST /api/embeddings`, the older one."""

    prompt: BodyText


@knows(no_effect("verbose", why="everything is told"))
class ShowBody(Struct, frozen=True, kw_only=True):
    """`POST /api/show`."""

    model: Name | None = None
    name: Name | None = None
    """Its older name."""
    verbose: bool | None = None
