"""The objects that `/v1/responses` answers with."""

import msgspec
from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.openai.receipts.receipt import Receipt
from draftwerk.api.openai.replies import TokenLogprob
from draftwerk.api.openai.responses.responses_schema import ReasoningWish
from draftwerk.api.requests.field_types import Verbosity
from draftwerk.api.requests.text_schema import FlatFormat
from draftwerk.api.requests.tools_schema import CustomFormat, FlatToolChoice, Mode
from draftwerk.api.shared.usage import (
    Approximations,
    RequestMetrics,
    SegmentDetails,
    ServiceTier,
)


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
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """Tokens of the whole output, in its last item, where it was cut and does not tell them: to be
    sent back with it; ours."""


class FunctionCallItem(Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call of a function."""

    id: str
    call_id: str
    """The id by which its result names it."""
    name: str
    """The function."""
    arguments: str
    """One object in JSON; cut where the response is incomplete."""
    status: str
    namespace: str | UnsetType = UNSET
    """The namespace that the function is in, where the request has it in one."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """As a message has them."""


class CustomCallItem(Struct, frozen=True, tag_field="type", tag="custom_tool_call"):
    """A call of a custom tool."""

    id: str
    call_id: str
    """The id by which its result names it."""
    name: str
    """The tool."""
    input: str
    """Its text; cut where the response is incomplete."""
    status: str
    namespace: str | UnsetType = UNSET
    """The namespace that the tool is in, where the request has it in one."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """As a message has them."""


class CompactionItem(Struct, frozen=True, tag_field="type", tag="compaction"):
    """An item in place of the beginning of a conversation."""

    id: str
    encrypted_content: str
    """A summary; it goes back as it came."""


class ReasoningPart(Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """Reasoning as the model wrote it."""

    text: str


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """The reasoning before an answer, of a model that reasons first."""

    id: str
    content: tuple[ReasoningPart, ...]
    status: str
    summary: tuple[()] = ()
    """Always empty: nothing is summed up."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """As a message has them."""


ResponseItem = OutputMessage | FunctionCallItem | CustomCallItem | ReasoningItem


class InputDetails(Struct, frozen=True):
    """How the input's tokens were computed."""

    cached_tokens: int
    """Input tokens whose KV came from the prefix cache."""
    cache_write_tokens: int = 0
    """Always 0: writing to the cache is not charged."""
    approximate: bool | UnsetType = UNSET
    """True of requests with `blend`: the text is not the exact one."""
    blended_tokens: int | UnsetType = UNSET
    """Tokens that were taken over from where their segment was read; of blended requests."""
    recomputed_share: float | UnsetType = UNSET
    """Share of the segments' tokens that was computed where it stands."""
    segments: tuple[SegmentDetails, ...] | UnsetType = UNSET
    """Each segment of a request with `blend`, in the order of the input."""
    image_tokens: int | UnsetType = UNSET
    """Input tokens that stand for pictures; only of requests that have some."""


class OutputDetails(Struct, frozen=True):
    """How the output's tokens divide."""

    reasoning_tokens: int = 0
    """The tokens of reasoning, of a model that reasons first."""
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
    approximations: Approximations = UNSET
    """The approximations that the text was computed with, by name; left out where it is the exact
    one."""


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


class ToolObject(Struct, frozen=True, kw_only=True):
    """A tool as the request has it."""

    type: str
    name: str | UnsetType = UNSET
    description: str | None = None
    parameters: msgspec.Raw | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    format: CustomFormat | UnsetType = UNSET
    tools: "tuple[ToolObject, ...] | UnsetType" = UNSET


class ConversationName(Struct, frozen=True):
    """The conversation that a response was added to."""

    id: str


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
    service_tier: ServiceTier = "default"
    temperature: float
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_p: float
    top_logprobs: int = 0
    max_tool_calls: int | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    conversation: ConversationName | None = None
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
    """The receipt of a request that asks for one, in the last event."""
