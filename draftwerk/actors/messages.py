"""Every message that crosses a mailbox, grouped by who receives it: plain data, no tensors."""

import msgspec

from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.further_outputs import NOTHING_FURTHER, FurtherOutputs
from draftwerk.speculative.requests.pooling import PoolingOutput
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.rounds import ChosenLogprob, Draft, Verdict


class ActorMessage(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of all messages; the tag makes a logged one self-describing."""


# --- to the tokenizer --------------------------------------------------------------------------


class Submit(ActorMessage, frozen=True):
    """A new request, or one that is submitted again after a crash."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
    prompt: Prompt
    """A conversation, a text, or token ids."""
    options: Options
    """How the request is to be decoded."""
    arrived_s: float | None = None
    """On the engine's clock, when it came first; None means now."""
    committed: tuple[tuple[int, ...], ...] = ()
    """Per choice, tokens already delivered before a crash; empty on a first submission."""
    ended: tuple[int, ...] = ()
    """Choices that ended before a crash."""


class Cancel(ActorMessage, frozen=True):
    """Follows the data's path, so it never overtakes the request it ends."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
    choice: int | None = None
    """None means all of them."""


TokenizerMessage = Submit | Cancel


# --- to the cache -------------------------------------------------------------------------------


class Encoded(EncodedRequest, frozen=True, tag=True, kw_only=True):
    """A request whose prompt has been tokenized and fits."""


class Decided(ActorMessage, frozen=True):
    """A round's result."""

    verdict: Verdict
    """The target's decision about each row."""
    drafts: tuple[Draft, ...]
    """The drafts that were verified, one per row."""


class Released(ActorMessage, frozen=True):
    """A sequence that was held back is let go."""


CacheMessage = Encoded | Cancel | Decided | Released


# --- to the detokenizer ---------------------------------------------------------------------------


class SequenceStats(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of one choice; counts of tokens unless stated otherwise."""

    prompt_count: int = 0
    """Tokens of the prompt, and of a half-written reply that goes on."""
    cached_count: int = 0
    """Prompt tokens whose KV came from the prefix cache."""
    step_count: int = 0
    """Device steps that sampled for this choice."""
    draft_count: int = 0
    """Drafted tokens that were verified."""
    accepted_histogram: tuple[int, ...] = ()
    """Entry j: steps in which j drafted tokens were accepted."""
    predicted_accepted: int = 0
    """Accepted tokens that the client's `prediction` proposed, and rejected ones."""
    predicted_rejected: int = 0
    """Verified tokens that the client's `prediction` proposed and the target rejected."""
    blended_count: int = 0
    """Prompt tokens whose KV was taken over from where their segment was read."""
    repaired_count: int = 0
    """Tokens of segments that were computed where they stand."""
    segments: tuple[tuple[int, int, int], ...] = ()
    """Each declared segment's counts: its tokens, those that were found in the cache, and those
    that were not computed where they stand."""
    score: float | None = None
    """The score of a finished beam search's text: its log-probability over the length penalty."""
    waited_s: float | None = None
    """From its arrival at the engine until its own tokens were computed; None if it was submitted
    before."""
    device_wait_s: float | None = None
    """The part of it in front of the model process."""
    read_s: float | None = None
    """From there to its first tokens."""


class ChoiceUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that one round committed to one choice."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
    choice: int
    """Number of the choice within its request."""
    tokens: tuple[int, ...]
    """The committed token ids, in order."""
    origins: tuple[str, ...] = ()
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    logprobs: tuple[ChosenLogprob, ...] = ()
    """Per token, if the request asks for log-probabilities."""
    further: FurtherOutputs = NOTHING_FURTHER
    """Outputs of options."""
    finish_reason: str = ""
    """"stop", "length", "error", "deadline_exceeded", or "slo_unmet"; empty while the choice goes
    on."""
    error: str = ""
    """Why the choice failed; empty unless the finish reason is one of the last three."""
    retry_after_ms: int = 0
    """The time after which the promise could have been kept."""
    stats: SequenceStats = SequenceStats()
    """The choice's cost so far."""
    times: StageTimes | None = None
    """When its stages began, if it was not submitted before."""


class Accepted(ActorMessage, frozen=True):
    """Comes before the first piece of a request."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
    prompt: tuple[int, ...]
    """The prompt's token ids."""
    options: Options
    """How the request is decoded."""
    committed: tuple[tuple[int, ...], ...] = ()
    """Per choice, tokens already delivered before a crash."""
    ended: tuple[int, ...] = ()
    """Choices that ended before a crash."""


class RoundOutputs(ActorMessage, frozen=True):
    """One message per round: every choice that got tokens or ended."""

    pieces: tuple[ChoiceUpdate, ...]
    """In the order of the round's rows."""
    decided_s: float = 0.0
    """When the round's verdict came, on the engine's clock."""


DetokenizerMessage = Accepted | RoundOutputs | Cancel


# --- to the API -----------------------------------------------------------------------------------


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


class Started(ActorMessage, frozen=True):
    """The first event of a request that was taken: its prompt has been tokenized."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
    prompt: tuple[int, ...]
    """The prompt's token ids, and those of a half-written reply that goes on."""
    choice: int = 0
    """The first choice of the prompt."""


class Delta(ActorMessage, frozen=True):
    """New text of one choice; it may lag behind its tokens (half a code point or stop string)."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
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
    hypothesis: str = ""
    """The best text of a beam search so far, which may still change behind its final part."""
    scored: tuple[TokenText, ...] = ()
    """The next tokens of the prompt, if the request asks for them; before the choice's text."""
    margin: float | None = None
    """By how much the last token beats the one that was given in its place, in nats."""
    parts: tuple[ReplyPart, ...] = ()
    """The new text as reasoning, text and calls, if the request has a reply format."""


class Ended(ActorMessage, frozen=True):
    """The end of one choice, with any text still held back."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
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
    pooling_output: PoolingOutput | None = None
    """The result of a prompt that was only to be read."""
    token_ids: tuple[int, ...] = ()
    """All tokens of a text that was cut where it does not tell them."""


class Failed(ActorMessage, frozen=True):
    """The last event of a request that could not be served."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
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


class Closed(ActorMessage, frozen=True):
    """The answer to a Cancel of a whole request: no message of it will follow."""

    request_id: str
    """The engine's name of a request; unique among live ones."""


Event = Started | Delta | Ended | Failed


class RequestEvents(ActorMessage, frozen=True):
    """What one piece means for its client: a crash loses all of it or nothing."""

    request_id: str
    """The engine's name of a request; unique among live ones."""
    events: tuple[Event, ...]
    """In the order in which the client reads them."""


RouterMessage = RequestEvents | Failed | Closed
