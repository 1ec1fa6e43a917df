"""Events of a request, in the order in which its client reads them."""

from draftwerk.actors.events.option_texts import NO_FURTHER_TEXTS, FurtherTexts, TokenText
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.request import OneRequest


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
