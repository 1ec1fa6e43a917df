"""The costs of a request: counts of tokens, and times."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from draftwerk.settings.approximations import AppliedApproximation

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
"""How soon a request is served, in OpenAI's words."""

Approximations = tuple[AppliedApproximation, ...] | UnsetType


class SegmentDetails(Struct, frozen=True):
    """How one declared segment was come by; counts of tokens."""

    tokens: int
    """All of it."""
    cached_tokens: int
    """Read alone before, and found in the cache."""
    blended_tokens: int
    """Taken over from where it was read; the others were computed where they stand."""


class PromptDetails(Struct, frozen=True):
    """How a prompt's tokens were computed."""

    cached_tokens: int
    """Prompt tokens whose KV came from the prefix cache."""
    approximate: bool | UnsetType = UNSET
    """True of requests with `blend`: the text is not the exact one."""
    blended_tokens: int | UnsetType = UNSET
    """Tokens that were taken over from where their segment was read. Only of requests with
    `blend`."""
    recomputed_share: float | UnsetType = UNSET
    """Share of the segments' tokens that were computed where they stand."""
    segments: tuple[SegmentDetails, ...] | UnsetType = UNSET
    """Each segment of a request with `blend`, in the order of the prompt."""
    image_tokens: int | UnsetType = UNSET
    """Tokens that stand for pictures; only of requests that have some."""


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
    approximations: Approximations = UNSET
    """The approximations that the text was computed with, by name; left out where it is the exact
    one."""


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
    """From the request's arrival until its own tokens were computed: for a place, for the
    tokenizer, for blocks, for a share of a round, and in front of the model process."""
    device_wait_time_ms: float | None
    """The part of it in front of the model process."""
    prefill_time_ms: float | None
    """From there to its first token: its prompt is read, perhaps in turns with others."""
    generation_time_ms: float | None
    """From the first token to the last."""
    mean_itl_ms: float | None
    """Mean time between two tokens of a choice."""
    tokens_per_second: float | None
    """Generated tokens of all choices, from admission to the last token."""
    speculative_decoding: SpeculativeDecoding | None
    """Acceptance over all choices; null if no step was counted."""
    seed: int
    """The seed that gives the same text again."""


class PoolingUsage(Struct, frozen=True):
    """Tokens that were read, of prompts that are not continued."""

    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
