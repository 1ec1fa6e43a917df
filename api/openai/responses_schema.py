"""What `/v1/responses` takes, by POST and over a WebSocket, and the objects it answers with."""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.openai.replies import RequestMetrics, TokenLogprob
from draftwerk.api.openai.schema import (
    MESSAGES_MAX,
    NOTHING,
    BodyText,
    Content,
    Effort,
    FlatFormat,
    Metadata,
    RefusedField,
    SamplingBody,
    ServiceTier,
    TokenCount,
    Verbosity,
)

ResponseId = Annotated[str, Meta(min_length=1, max_length=256)]
StreamId = Annotated[str, Meta(min_length=1, max_length=128)]


class InputMessage(Struct, frozen=True):
    """A message of the input; earlier output may be sent back as it came."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    type: Literal["message"] | None = None
    phase: RefusedField = NOTHING


class TextRequest(Struct, frozen=True):
    """The form of the text that is generated."""

    format: FlatFormat | None = None
    verbosity: Verbosity | None = None


ReasoningSummary = Literal["auto", "concise", "detailed"]


class ReasoningWish(Struct, frozen=True, omit_defaults=True):
    """For models that reason first; others have nothing to reason less, or to sum up."""

    effort: Effort | None = None
    summary: ReasoningSummary | None = None
    generate_summary: ReasoningSummary | None = None


class ResponsesBody(SamplingBody, frozen=True, kw_only=True):
    """`POST /v1/responses`, and `response.create`."""

    generate: bool | None = None
    """Only true is served."""
    input: BodyText | Annotated[list[InputMessage], Meta(min_length=1, max_length=MESSAGES_MAX)]
    instructions: BodyText | None = None
    max_output_tokens: TokenCount | None = None
    metadata: Metadata | None = None
    previous_response_id: ResponseId | None = None
    reasoning: ReasoningWish | None = None
    store: bool | None = None
    """Whether it is kept for `previous_response_id` and GET; true if absent."""
    text: TextRequest | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["disabled", "auto"] | None = None
    """With auto, the earliest turns go where the conversation does not fit into the context."""

    access_programs: RefusedField = NOTHING
    background: RefusedField = NOTHING
    context_management: RefusedField = NOTHING
    conversation: RefusedField = NOTHING
    image: RefusedField = NOTHING
    max_tool_calls: RefusedField = NOTHING
    prompt: RefusedField = NOTHING
    tool_choice: RefusedField = NOTHING
    tools: RefusedField = NOTHING
    best_of: RefusedField = NOTHING
    echo: RefusedField = NOTHING
    logprobs: RefusedField = NOTHING
    max_completion_tokens: RefusedField = NOTHING
    max_tokens: RefusedField = NOTHING
    n: RefusedField = NOTHING
    stream_options: RefusedField = NOTHING
    response_format: RefusedField = NOTHING

    hints: ClassVar[dict[str, str]] = {
        **SamplingBody.hints,
        "reasoning": "the model does not reason first; refused for one that does",
        "text.verbosity": "no model here is trained for it; say it in the prompt",
    }
    instead: ClassVar[dict[str, str]] = {
        **{
            field: words.replace("response_format", "text.format")
            for field, words in SamplingBody.instead.items()
        },
        "background": "`stream`, or a WebSocket",
        "best_of": "/v1/completions",
        "context_management": "`truncation`",
        "conversation": "`previous_response_id`",
        "echo": "/v1/completions",
        "logprobs": "`include` with message.output_text.logprobs",
        "max_completion_tokens": "`max_output_tokens`",
        "max_tokens": "`max_output_tokens`",
        "n": "/v1/chat/completions",
        "prompt": "`input` and `instructions`",
        "response_format": "`text.format`",
        "tool_choice": "`text.format` with the schema of the call",
        "tools": "`text.format` with the schema of the call",
    }
    harmless: ClassVar[dict[str, tuple[bytes, ...]]] = {
        **SamplingBody.harmless,
        "best_of": (b"1",),
        "n": (b"1",),
        "response_format": (b'{"type":"text"}',),
        "stream_options": (b'{"include_obfuscation":false}',),
        "tool_choice": (b'"none"', b'"auto"'),
    }


class ClientEvent(Struct, frozen=True):
    """What every event of a client has: its kind, and where the answer goes."""

    type: Annotated[str, Meta(max_length=64)]
    """The event's name."""
    stream_id: StreamId | None = None
    """The stream that the event belongs to, where a client runs several."""
    response_id: ResponseId | None = None
    """The response that the event is about."""


# --- what comes back --------------------------------------------------------------------------


class OutputText(Struct, frozen=True, tag_field="type", tag="output_text"):
    """A generated text."""

    text: str
    """The whole text."""
    annotations: tuple[()] = ()
    """Always empty."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One item for each token, if the request asks for them."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""


class OutputMessage(Struct, frozen=True, tag_field="type", tag="message"):
    """The message that a response generates."""

    id: str
    status: str
    content: tuple[OutputText, ...]
    role: str = "assistant"


class InputDetails(Struct, frozen=True):
    """How the input's tokens were computed."""

    cached_tokens: int
    """Input tokens whose KV came from the prefix cache."""
    cache_write_tokens: int = 0
    """Always 0: writing to the cache is not charged."""


class OutputDetails(Struct, frozen=True):
    """What became of the client's `prediction`; no model here counts its reasoning."""

    reasoning_tokens: int = 0
    accepted_prediction_tokens: int | UnsetType = UNSET
    """Tokens of the prediction that were accepted."""
    rejected_prediction_tokens: int | UnsetType = UNSET
    """Tokens of the prediction that were verified and rejected."""


class ResponseUsage(Struct, frozen=True):
    """Counts of tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFault(Struct, frozen=True):
    """Why a response failed."""

    code: str
    """One of the codes in docs/reference.md."""
    message: str
    """One sentence for the client."""
    param: str | None = None
    """The request's field that is to blame."""


class IncompleteDetails(Struct, frozen=True):
    """Why a response is incomplete."""

    reason: str


class TextConfig(Struct, frozen=True):
    """The form of the text, as the request has it."""

    format: FlatFormat = FlatFormat("text")
    verbosity: Verbosity | UnsetType = UNSET


class DeletedResponse(Struct, frozen=True):
    """The answer to a DELETE."""

    id: str
    object: str = "response"
    deleted: bool = True


class ResponseObject(Struct, frozen=True, kw_only=True):
    """The state of a response, as it stands in the first and the last events."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str
    model: str
    output: tuple[OutputMessage, ...] = ()
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: ReasoningWish | None = None
    service_tier: ServiceTier | UnsetType = UNSET
    temperature: float
    top_p: float
    top_logprobs: int = 0
    tool_choice: str = "none"
    tools: tuple[()] = ()
    text: TextConfig = TextConfig()
    truncation: str = "disabled"
    store: bool = False
    background: bool = False
    usage: ResponseUsage | None = None
    metrics: RequestMetrics | None = None
