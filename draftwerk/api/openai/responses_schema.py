"""What `/v1/responses` takes, by POST and over a WebSocket, and the objects it answers with."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.core.usage import RequestMetrics, SegmentDetails, ServiceTier
from draftwerk.api.fields.field_types import (
    MESSAGES_MAX,
    BodyText,
    Effort,
    Metadata,
    TokenCount,
    Verbosity,
)
from draftwerk.api.fields.refused_fields import refuses
from draftwerk.api.fields.segments_schema import BlendBody, Documents
from draftwerk.api.fields.text_schema import FlatFormat
from draftwerk.api.fields.tools_schema import (
    CallId,
    FlatToolChoice,
    FlatTools,
    FunctionName,
    Mode,
)
from draftwerk.api.openai.receipts.receipt import Receipt
from draftwerk.api.openai.replies import TokenLogprob
from draftwerk.api.openai.schema import Content, ReasoningBudget, SamplingBody, TemplateVariables

ResponseId = Annotated[str, Meta(min_length=1, max_length=256)]
StreamId = Annotated[str, Meta(min_length=1, max_length=128)]


ItemType = Literal["message", "function_call", "function_call_output", "reasoning"]


class InputPart(Struct, frozen=True):
    """A text of a message, or of the reasoning before an answer."""

    type: Literal["text", "input_text", "output_text", "reasoning_text"]
    text: BodyText
    blend: BlendBody | None = None
    """Of a message: the part is a segment that may be reused."""


@refuses(phase="")
class InputMessage(Struct, frozen=True):
    """An item of the input: a message, a call, its result, or reasoning; earlier output may be sent
    back as it came.
    """

    role: Literal["system", "developer", "user", "assistant"] | None = None
    """Of a message."""
    content: BodyText | Annotated[list[InputPart], Meta(max_length=MESSAGES_MAX)] | None = None
    """Of a message, or of reasoning."""
    type: ItemType | None = None
    """A message, where it is absent."""
    call_id: CallId | None = None
    """Of a call, and of its result."""
    name: FunctionName | None = None
    """Of a call: the function."""
    arguments: BodyText | None = None
    """Of a call: one object in JSON."""
    output: Content | None = None
    """Of a result."""


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


@refuses(
    {
        "best_of": (b"1",),
        "n": (b"1",),
        "response_format": (b'{"type":"text"}',),
        "stream_options": (b'{"include_obfuscation":false}',),
    },
    access_programs="",
    context_management="`truncation`",
    conversation="`previous_response_id`",
    image="",
    max_tool_calls="",
    prompt="`input` and `instructions`",
    best_of="/v1/completions",
    echo="/v1/completions",
    prompt_logprobs="",
    logprobs="`include` with message.output_text.logprobs",
    max_completion_tokens="`max_output_tokens`",
    max_tokens="`max_output_tokens`",
    n_predict="`max_output_tokens`",
    reasoning_effort="`reasoning.effort`",
    thinking="`reasoning.effort` or `thinking_budget`",
    n="/v1/chat/completions",
    stream_options="",
    response_format="`text.format`",
    max_new_tokens="`max_output_tokens`",
)
class ResponsesBody(SamplingBody, frozen=True, kw_only=True):
    """`POST /v1/responses`, and `response.create`."""

    background: bool | None = None
    """With `stream`: whether events are kept for a while after the connection broke."""
    receipt: bool | None = None
    """Whether the response carries what `/v1/verify` checks; ours."""
    generate: bool | None = None
    """Only true is served."""
    input: BodyText | Annotated[list[InputMessage], Meta(min_length=1, max_length=MESSAGES_MAX)]
    documents: Documents | None = None
    """Texts before the last user's message, of this response alone; ours."""
    blend: BlendBody | None = None
    """How documents are reused wherever they stand; ours."""
    instructions: BodyText | None = None
    max_output_tokens: TokenCount | None = None
    metadata: Metadata | None = None
    previous_response_id: ResponseId | None = None
    reasoning: ReasoningWish | None = None
    store: bool | None = None
    """Whether it is kept for `previous_response_id` and GET; true if absent."""
    text: TextRequest | None = None
    tools: FlatTools | None = None
    tool_choice: Mode | FlatToolChoice | None = None
    chat_template_kwargs: TemplateVariables | None = None
    """Of those that the chat template asks for."""
    thinking_budget: ReasoningBudget | None = None
    """Tokens of reasoning, after which it is ended; ours."""
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["disabled", "auto"] | None = None
    """With auto, the earliest turns go where the conversation does not fit into the context."""

    hints: ClassVar[dict[str, str]] = {
        **SamplingBody.hints,
        "reasoning": "where the model does not reason first",
        "text.verbosity": "no model here is trained for it; say it in the prompt",
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


class FunctionCallItem(Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call of a function."""

    id: str
    call_id: str
    """What its result names it by."""
    name: str
    """The function."""
    arguments: str
    """One object in JSON; cut where the response is incomplete."""
    status: str


class ReasoningPart(Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """Reasoning as the model wrote it."""

    text: str


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """What came before an answer, of a model that reasons first."""

    id: str
    content: tuple[ReasoningPart, ...]
    status: str
    summary: tuple[()] = ()
    """Always empty: nothing is summed up."""


ResponseItem = OutputMessage | FunctionCallItem | ReasoningItem


class InputDetails(Struct, frozen=True):
    """How the input's tokens were computed."""

    cached_tokens: int
    """Input tokens whose KV came from the prefix cache."""
    cache_write_tokens: int = 0
    """Always 0: writing to the cache is not charged."""
    approximate: bool | UnsetType = UNSET
    """True of requests with `blend`: the text is not the exact one."""
    blended_tokens: int | UnsetType = UNSET
    """Input tokens whose KV was computed as if their segment stood alone; of blended requests."""
    recomputed_share: float | UnsetType = UNSET
    """Share of the segments' tokens that was computed where it stands."""
    segments: tuple[SegmentDetails, ...] | UnsetType = UNSET
    """Of requests with `blend`: each segment, in the order of the input."""


class OutputDetails(Struct, frozen=True):
    """How the output's tokens divide."""

    reasoning_tokens: int = 0
    """Of a model that reasons first."""
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


class InputTokens(Struct, frozen=True):
    """The length of a prompt."""

    input_tokens: int
    object: str = "response.input_tokens"


class ToolObject(Struct, frozen=True):
    """A function as the request has it."""

    name: str
    parameters: msgspec.Raw
    strict: bool
    description: str | None = None
    type: str = "function"


class ResponseObject(Struct, frozen=True, kw_only=True):
    """The state of a response, as it stands in the first and the last events."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str
    model: str
    output: tuple[ResponseItem, ...] = ()
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
    tool_choice: Mode | FlatToolChoice = "none"
    tools: tuple[ToolObject, ...] = ()
    text: TextConfig = TextConfig()
    truncation: str = "disabled"
    store: bool = False
    background: bool = False
    usage: ResponseUsage | None = None
    metrics: RequestMetrics | None = None
    system_fingerprint: str = ""
    """Equal ones, with equal requests and seeds, give equal texts."""
    receipt: Receipt | UnsetType = UNSET
    """Of a request that asks for one, in the last event."""
