"""Events of a request, in the order in which its client reads them."""

import msgspec

from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.request import OneRequest
from draftwerk.speculative.requests.pooling import PoolingOutput


class TokenText(msgspec.Struct, frozen=True):
    """A token with its log-probability, as text and as the bytes it stands for."""

    token_id: int
    """The token's number in the vocabulary."""
    text: str
    """U+FFFD stands for bytes that are no whole character."""
    data: bytes
    """The token's own bytes."""
    logprob: float
    """Natural logarithm of the token's probability."""
    top: tuple["TokenText", ...] = ()
    """The most likely tokens at this position, best first."""


class FurtherTexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outputs of options beside a text, each if its request asks for it."""

    hypothesis: str = ""
    """The best text of a beam search so far, which may still change behind its final part."""
    scored: tuple[TokenText, ...] = ()
    """The next tokens of the prompt; before the choice's text."""
    margin: float | None = None
    """By how much the last token beats the one that was given in its place, in nats."""
    pooling_output: PoolingOutput | None = None
    """The result of a prompt that was only to be read."""


NO_FURTHER_TEXTS = FurtherTexts()


class EngineEvent(OneRequest, frozen=True, tag=True):
    """Base of all events."""


class Started(EngineEvent, frozen=True):
    """The first event of a request that was taken: its prompt has been tokenized."""

    prompt: tuple[int, ...]
    """The prompt's token ids, and those of a half-written reply that goes on."""
    choice: int = 0
    """The first choice of the prompt."""


class Delta(EngineEvent, frozen=True):
    """New text of one choice; it may lag behind its tokens (half a code point or stop string)."""

    choice: int
    """Number of the choice within its request."""
    text: str
    """The new part of the choice's text."""
    tokens: tuple[int, ...] = ()
    """The new token ids."""
    origins: tuple[str, ...] = ()
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    logprobs: tuple[TokenText, ...] = ()
    """Per token, if the request asks for log-probabilities."""
    further: FurtherTexts = NO_FURTHER_TEXTS
    """Outputs of options."""
    parts: tuple[ReplyPart, ...] = ()
    """The new text as reasoning, text and calls, if the request has a reply format."""


class Ended(EngineEvent, frozen=True):
    """The end of one choice, with any text still held back."""

    choice: int
    """Number of the choice within its request."""
    finish_reason: str
    """"stop" or "length"."""
    text: str
    """Text that was held back until now."""
    token_count: int
    """Generated tokens, the one that ended the text included."""
    stats: SequenceStats
    """The statistics of the whole choice."""
    stopped_by: str = ""
    """The stop string that was found, if one was."""
    parts: tuple[ReplyPart, ...] = ()
    """The held back text as reasoning, text and calls, if the request has a reply format."""
    reasoning_count: int = 0
    """Generated tokens that were reasoning."""
    further: FurtherTexts = NO_FURTHER_TEXTS
    """Outputs of options."""
    token_ids: tuple[int, ...] = ()
    """All tokens of a text that was cut where it does not tell them."""


class Failed(EngineEvent, frozen=True):
    """The last event of a request that could not be served."""

    kind: str
    """"refused" (the request's fault, HTTP 400), "failed" (ours, HTTP 500), "deadline_exceeded"
    (HTTP 504), "slo_unmet" (what it was promised cannot be kept, HTTP 503), or "unavailable" (what
    it needs is away for a moment, HTTP 503)."""
    reason: str
    """One sentence for the client."""
    field: str = ""
    """The request's field that is to blame."""
    retry_after_ms: int = 0
    """When to try again: a promise that cannot be kept, or a server that was unavailable."""
    context_max: int = 0
    """The limit that a prompt exceeds: the most tokens of a text; 0 otherwise."""
    count: int = 0
    """Tokens of a prompt that is too long."""
    more: int = 0
    """Tokens to be generated, where those are what is too many."""


Event = Started | Delta | Ended | Failed
