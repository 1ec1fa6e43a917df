"""What clients get back: usage, metrics, and the bodies of chat and completions."""

from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.replying.field_types import ServiceTier
from draftwerk.api.replying.tools_schema import CalledFunction


class PromptDetails(Struct, frozen=True):
    """How a prompt's tokens were computed."""

    cached_tokens: int
    """Prompt tokens whose KV came from the prefix cache."""
    blended_tokens: int | UnsetType = UNSET
    """Tokens of segments that were computed as if their segment stood alone: the text is
    approximate. Only of requests with `blend`."""
    recomputed_share: float | UnsetType = UNSET
    """Share of the segments' tokens that were computed where they stand."""
    blend_certificate: str | UnsetType = UNSET
    """Id of the measurement that says how far such texts are from exact ones."""


class CompletionDetails(Struct, frozen=True):
    """How the generated tokens divide."""

    accepted_prediction_tokens: int | UnsetType = UNSET
    """Tokens of the prediction that were accepted."""
    rejected_prediction_tokens: int | UnsetType = UNSET
    """Tokens of the prediction that were verified and rejected."""
    reasoning_tokens: int | UnsetType = UNSET
    """Tokens of reasoning, of a model that reasons first."""


class Usage(Struct, frozen=True):
    """Counts of tokens over all choices; a prompt counts once however many choices it has."""

    prompt_tokens: int
    """Tokens of the prompts."""
    completion_tokens: int
    """Generated tokens."""
    total_tokens: int
    """The sum of both."""
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    """Left out of the running counts in a stream."""
    completion_tokens_details: CompletionDetails | UnsetType = UNSET
    """Only of requests with a `prediction`, and of models that reason first."""


class SpeculativeDecoding(Struct, frozen=True):
    """vLLM's shape: Σ histogram = steps, Σ j·histogram[j] = accepted tokens."""

    mean_acceptance_length: float
    """Accepted tokens per step, plus one."""
    draft_acceptance_rate: float
    """Accepted tokens per drafted token."""
    acceptance_histogram: tuple[int, ...]
    """Entry j: steps in which j drafted tokens were accepted."""
    num_spec_steps: int
    """Device steps that sampled for this request."""
    num_accepted_draft_tokens: int
    """Drafted tokens that were accepted."""
    num_draft_tokens: int
    """Drafted tokens that were verified."""
    num_spec_tokens: int
    """The most drafted tokens that one step accepted."""


class RequestMetrics(Struct, frozen=True):
    """Times as the server measured them, in milliseconds; null where nothing was generated."""

    time_to_first_token_ms: float | None
    """From the request's arrival to its first token."""
    queue_time_ms: float
    """From the request's arrival to its admission."""
    generation_time_ms: float | None
    """From the first token to the last."""
    mean_itl_ms: float | None
    """Mean time between two tokens of a choice."""
    tokens_per_second: float | None
    """Generated tokens of all choices, from admission to the last token."""
    speculative_decoding: SpeculativeDecoding | None
    """Acceptance over all choices; null if no step was counted."""
    seed: int
    """What to send to get the same text again."""


# --- log-probabilities ------------------------------------------------------------------------


class TopLogprob(Struct, frozen=True):
    """One of the most likely tokens at a position."""

    token: str
    """The token's text."""
    logprob: float
    """Natural logarithm of the token's probability."""
    bytes: list[int]
    """The token's own bytes."""


class TokenLogprob(Struct, frozen=True):
    """A generated token with its log-probability."""

    token: str
    """The token's text."""
    logprob: float
    """Natural logarithm of the token's probability."""
    bytes: list[int]
    """The token's own bytes."""
    top_logprobs: list[TopLogprob]
    """The most likely tokens at this position, best first."""


class ChatLogprobs(Struct, frozen=True):
    """Log-probabilities of a chat answer."""

    content: tuple[TokenLogprob, ...]
    """One item for each generated token."""
    refusal: None = None
    """Always null: no model here marks refusals."""


class CompletionLogprobs(Struct, frozen=True):
    """Log-probabilities of a completion, as parallel lists."""

    tokens: list[str]
    """The tokens' texts."""
    token_logprobs: list[float]
    """Natural logarithms of the tokens' probabilities."""
    top_logprobs: list[dict[str, float]]
    """Per token: the most likely tokens' texts and log-probabilities."""
    text_offset: list[int]
    """Where each token starts in the choice's text, in characters."""


# --- chat -----------------------------------------------------------------------------------------


class FunctionDelta(Struct, frozen=True, omit_defaults=True):
    """What one chunk adds to a function's name and arguments."""

    name: str | UnsetType = UNSET
    """In the first chunk of a call."""
    arguments: str | UnsetType = UNSET
    """The new part of the arguments, in JSON."""


class CallDelta(Struct, frozen=True, omit_defaults=True):
    """What one chunk adds to a call."""

    index: int
    """Number of the call within its message."""
    function: FunctionDelta
    """What the chunk adds."""
    id: str | UnsetType = UNSET
    """In the first chunk of a call: what its result names it by."""
    type: str | UnsetType = UNSET
    """In the first chunk of a call: always "function"."""


class CallReply(Struct, frozen=True):
    """A call of a function."""

    id: str
    """What its result names it by."""
    function: CalledFunction
    """The function's name and arguments."""
    type: str = "function"
    """Always a function."""


class ChatDelta(Struct, frozen=True, omit_defaults=True):
    """What one chunk adds to a message."""

    role: str = ""
    """In the first chunk of a choice."""
    content: str | None = None
    """The new part of the text."""
    reasoning_content: str | None = None
    """The new part of the reasoning, of a model that reasons first."""
    tool_calls: tuple[CallDelta, ...] | UnsetType = UNSET
    """What is new of calls."""


class ChatChunkChoice(Struct, frozen=True):
    """One choice's part of a chunk."""

    index: int
    """Number of the choice within its request."""
    delta: ChatDelta
    """What the chunk adds."""
    logprobs: ChatLogprobs | None
    """Null unless the request asks for them."""
    finish_reason: str | None
    """"stop", "length" or "tool_calls"; null while the choice goes on."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""


class ChatChunk(Struct, frozen=True):
    """One event of a streamed chat answer."""

    id: str
    """Of the request; equal in all chunks."""
    object: str
    """The kind of this object, as OpenAI names it."""
    created: int
    """Unix time in seconds."""
    model: str
    """The served model's name."""
    choices: tuple[ChatChunkChoice, ...]
    """In the order of their numbers; empty in a chunk of usage alone."""
    usage: Usage | UnsetType | None = UNSET
    """Counts of tokens."""
    metrics: RequestMetrics | UnsetType = UNSET
    """Times and acceptance of the request."""
    service_tier: ServiceTier | UnsetType = UNSET
    """As the request has it."""


class ChatMessageReply(Struct, frozen=True):
    """The generated message."""

    content: str | None
    """The message's text; null beside calls if there is none."""
    role: str = "assistant"
    """Always the assistant's."""
    refusal: None = None
    """Always null: no model here marks refusals."""
    reasoning_content: str | UnsetType = UNSET
    """What came before the text, of a model that reasons first."""
    tool_calls: tuple[CallReply, ...] | UnsetType = UNSET
    """The calls of tools, if there are any."""


class ChatChoice(Struct, frozen=True):
    """One generated message and how it ended."""

    index: int
    """Number of the choice within its request."""
    message: ChatMessageReply
    """The generated message."""
    logprobs: ChatLogprobs | None
    """Null unless the request asks for them."""
    finish_reason: str
    """"stop", "length" or "tool_calls"; null while the choice goes on."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""


class ChatReply(Struct, frozen=True):
    """A whole chat answer."""

    id: str
    """Of the request; equal in all chunks."""
    object: str
    """The kind of this object, as OpenAI names it."""
    created: int
    """Unix time in seconds."""
    model: str
    """The served model's name."""
    choices: tuple[ChatChoice, ...]
    """In the order of their numbers; empty in a chunk of usage alone."""
    usage: Usage
    """Counts of tokens."""
    metrics: RequestMetrics
    """Times and acceptance of the request."""
    service_tier: ServiceTier | UnsetType = UNSET
    """As the request has it."""


# --- completions ----------------------------------------------------------------------------------


class CompletionChoice(Struct, frozen=True):
    """One generated text, or a chunk's part of it."""

    index: int
    """Number of the choice within its request."""
    text: str
    """The generated text, or what a chunk adds to it."""
    logprobs: CompletionLogprobs | None
    """Null unless the request asks for them."""
    finish_reason: str | None
    """"stop" or "length"; null while the choice goes on."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""


class CompletionReply(Struct, frozen=True):
    """A whole completion, and a chunk of one."""

    id: str
    """Of the request; equal in all chunks."""
    object: str
    """The kind of this object, as OpenAI names it."""
    created: int
    """Unix time in seconds."""
    model: str
    """The served model's name."""
    choices: tuple[CompletionChoice, ...]
    """In the order of their numbers; empty in a chunk of usage alone."""
    usage: Usage | UnsetType | None = UNSET
    """Counts of tokens."""
    metrics: RequestMetrics | UnsetType = UNSET
    """Times and acceptance of the request."""
    service_tier: ServiceTier | UnsetType = UNSET
    """As the request has it."""
