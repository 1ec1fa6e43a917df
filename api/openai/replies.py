"""What clients get back: usage, metrics, and the bodies of chat and completions."""

from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.openai.schema import ServiceTier


class PromptDetails(Struct, frozen=True):
    cached_tokens: int


class CompletionDetails(Struct, frozen=True):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Struct, frozen=True):
    """Counts of tokens over all choices; a prompt counts once however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    completion_tokens_details: CompletionDetails | UnsetType = UNSET


class SpeculativeDecoding(Struct, frozen=True):
    """vLLM's shape: Σ histogram = steps, Σ j·histogram[j] = accepted tokens."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: tuple[int, ...]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int


class RequestMetrics(Struct, frozen=True):
    """Times as the server measured them, in milliseconds; null where nothing was generated."""

    time_to_first_token_ms: float | None
    queue_time_ms: float
    generation_time_ms: float | None
    mean_itl_ms: float | None
    tokens_per_second: float | None
    speculative_decoding: SpeculativeDecoding | None
    seed: int
    """What to send to get the same text again."""


# --- log-probabilities ------------------------------------------------------------------------


class TopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    content: tuple[TokenLogprob, ...]
    refusal: None = None


class CompletionLogprobs(Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Where each token starts in the choice's text, in characters."""


# --- chat -----------------------------------------------------------------------------------------


class ChatDelta(Struct, frozen=True, omit_defaults=True):
    role: str = ""
    content: str | None = None


class ChatChunkChoice(Struct, frozen=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    origins: tuple[str, ...] | UnsetType = UNSET
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""


class ChatChunk(Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChatChunkChoice, ...]
    usage: Usage | UnsetType | None = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    service_tier: ServiceTier | UnsetType = UNSET


class ChatMessageReply(Struct, frozen=True):
    content: str
    role: str = "assistant"
    refusal: None = None


class ChatChoice(Struct, frozen=True):
    index: int
    message: ChatMessageReply
    logprobs: ChatLogprobs | None
    finish_reason: str
    origins: tuple[str, ...] | UnsetType = UNSET
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""


class ChatReply(Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: Usage
    metrics: RequestMetrics
    service_tier: ServiceTier | UnsetType = UNSET


# --- completions ----------------------------------------------------------------------------------


class CompletionChoice(Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    origins: tuple[str, ...] | UnsetType = UNSET
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""


class CompletionReply(Struct, frozen=True):
    """A whole completion, and a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: Usage | UnsetType | None = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    service_tier: ServiceTier | UnsetType = UNSET
