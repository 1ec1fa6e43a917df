"""Every message that crosses a mailbox, grouped by who receives it: plain data, no tensors."""

import msgspec

from draftwerk.speculative.blend.rules import Blend
from draftwerk.speculative.protocol.rounds import ChosenLogprob, Draft, Verdict
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sequence import StageTimes
from draftwerk.speculative.slo import Promise


class ActorMessage(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of all messages; the tag makes a logged one self-describing."""


# --- requests of clients ----------------------------------------------------------------------


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool in an earlier answer."""

    id: str
    """What the tool's result names it by."""
    name: str
    """The function's name."""
    arguments: str
    """One object in JSON."""


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    """"system", "user", "assistant", or another role of the model's template."""
    content: str
    """The turn's text."""
    name: str = ""
    """Of the participant, for templates that show it."""
    tokens: tuple[int, ...] = ()
    """Of an earlier answer: the tokens that it was generated as, where they are known."""
    calls: tuple[ToolCall, ...] = ()
    """Of an earlier answer: the tools that it called."""
    call_id: str = ""
    """Of a tool's result: the call it belongs to."""
    reasoning: str = ""
    """Of an earlier answer: what came before it, for templates that show it."""
    segments: tuple[tuple[int, int], ...] = ()
    """(start, stop) in the content of each declared segment, in characters, ascending."""


Scalar = bool | int | str


class Chat(msgspec.Struct, frozen=True, tag=True):
    """A conversation, to be rendered by the model's chat template."""

    messages: tuple[ChatMessage, ...]
    """The turns, oldest first."""
    tools: tuple[str, ...] = ()
    """The tools that the model is told of, each in JSON as OpenAI's API has it."""
    variables: tuple[tuple[str, Scalar], ...] = ()
    """More of what the chat template is given."""


class Passages(msgspec.Struct, frozen=True, tag=True):
    """Texts that are segments of a prompt, each followed by an empty line, and what follows."""

    documents: tuple[str, ...]
    """The segments."""
    text: str
    """What stands behind them."""


Prompt = Chat | Passages | str | tuple[int, ...]


class Speculation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which drafts are made for a request; the text does not depend on them."""

    enabled: bool = True
    """Whether drafts are made at all."""
    methods: tuple[str, ...] | None = None
    """Names of draft sources; None means every source the server runs."""
    draft_max: int | None = None
    """Drafted tokens per round at most."""
    prediction: str = ""
    """The text the client expects."""


CHOICES_MAX = 16
"""Texts for one prompt at most."""


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one request is decoded; the API has checked the numbers."""

    sampling: Sampling
    """Without branch and stop tokens: the engine fills those in."""
    tokens_max: int | None = None
    """Generated tokens per choice; None means as many as the context holds."""
    ignore_eos: bool = False
    """Whether the text goes on behind the model's end token."""
    stop: tuple[str, ...] = ()
    """Strings that end a choice's text where they first occur; they are left out of it."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end a choice's text besides the model's own; they have no text."""
    choices: int = 1
    """Texts to generate for each prompt."""
    beam_width: int = 1
    """Above 1 the choices are the best texts of a beam search; above temperature 0, texts drawn
    without replacement."""
    length_penalty: float = 1.0
    """Of a beam search: a text's log-probability is divided by its length to this power."""
    early_stopping: bool = False
    """Of a beam search: whether as many finished texts as the beam is wide are enough."""
    shows_hypotheses: bool = False
    """Whether deltas carry the best text of a beam search so far, which is not final."""
    echo: bool = False
    """Whether the prompt's text comes first in each choice."""
    reply: ReplyFormat | None = None
    """How reasoning, text and calls are told apart; None for a reply that is text alone."""
    speculation: Speculation = Speculation()
    """Which drafts are made for the request."""
    tenant: str = ""
    """The API key's name."""
    cache_salt: str = ""
    """Replaces the tenant in `name_space`, so that callers may share one or split their own."""
    priority: int = 0
    """Lower is sooner."""
    promise: Promise | None = None
    """What its reader is promised; None means what the server promises everybody."""
    deadline_s: float = 0.0
    """From its arrival until it fails unless its text has begun; 0 means never."""
    waited_s: float = 0.0
    """How long its reader had waited already when it came to the engine."""
    blend: Blend | None = None
    """How declared segments of the prompt are reused. Of a prompt in tokens it has their spans;
    else the prompt has them."""

    @property
    def name_space(self) -> str:
        """Within what cached blocks and finished outputs are shared; salts never meet tenants."""
        return f"salt {self.cache_salt}" if self.cache_salt else f"tenant {self.tenant}"

    def waited(self, wait_s: float) -> "Options":
        """Return them for a reader who waited so much longer, where anything depends on that."""
        if self.promise is None and not self.deadline_s:
            return self
        return msgspec.structs.replace(self, waited_s=self.waited_s + wait_s)


# --- to the tokenizer --------------------------------------------------------------------------


class Submit(ActorMessage, frozen=True):
    """A new request, or one that is submitted again after a crash."""

    request_id: str
    """Of the engine; unique among live requests."""
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
    """Of the engine; unique among live requests."""
    choice: int | None = None
    """None means all of them."""


TokenizerMessage = Submit | Cancel


# --- to the cache -------------------------------------------------------------------------------


class Encoded(ActorMessage, frozen=True):
    """A request whose prompt has been tokenized and fits."""

    request_id: str
    """Of the engine; unique among live requests."""
    tokens: tuple[int, ...]
    """The prompt's token ids."""
    options: Options
    """How the request is to be decoded."""
    blend: Blend | None = None
    """Which of its tokens are segments that may be reused, if it declares some."""
    prediction: tuple[int, ...] = ()
    """Token ids of the text that the client expects; empty without one."""
    arrived_s: float | None = None
    """On the engine's clock, when it came first; None means now."""
    times: StageTimes | None = None
    """Of a first submission: when tokenizing began and ended."""
    committed: tuple[tuple[int, ...], ...] = ()
    """Per choice, tokens already delivered before a crash; empty on a first submission."""
    ended: tuple[int, ...] = ()
    """Choices that ended before a crash."""


class Decided(ActorMessage, frozen=True):
    """A round's result."""

    verdict: Verdict
    """The target's decision about each row."""
    drafts: tuple[Draft, ...]
    """What was verified, one draft per row."""


class Prefilled(ActorMessage, frozen=True):
    """The result of a round that a prefill process computed."""

    verdict: Verdict
    """It decides nothing, but may say that a row failed."""


class PrefillProcess(ActorMessage, frozen=True):
    """A prefill process has come, or has gone with whatever it was sent."""

    process: int
    """Its number."""
    up: bool
    """Whether it can work."""


class Fetched(ActorMessage, frozen=True):
    """Blocks of a preempted sequence are back from tier two, as far as they could be had."""


CacheMessage = Encoded | Cancel | Decided | Prefilled | PrefillProcess | Fetched


# --- to the detokenizer ---------------------------------------------------------------------------


class SequenceStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice cost; counts of tokens unless stated otherwise."""

    prompt_count: int = 0
    """Tokens of the prompt."""
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
    preemption_count: int = 0
    """How often the sequence lost its blocks and was computed again."""
    blended_count: int = 0
    """Prompt tokens whose KV was computed as if their segment stood alone."""
    repaired_count: int = 0
    """Tokens of segments that were computed where they stand."""
    segments: tuple[tuple[int, int, int], ...] = ()
    """Of each declared segment: its tokens, those that were found in the cache, and those that were
    not computed where they stand."""
    score: float | None = None
    """Of a finished beam search's text: its log-probability over the length penalty."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one round committed to one choice."""

    request_id: str
    """Of the engine; unique among live requests."""
    choice: int
    """Number of the choice within its request."""
    tokens: tuple[int, ...]
    """The committed token ids, in order."""
    origins: tuple[str, ...] = ()
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    logprobs: tuple[ChosenLogprob, ...] = ()
    """Per token, if the request asks for log-probabilities."""
    hypothesis: tuple[int, ...] = ()
    """All tokens of the best text of a beam search so far, if the request asks for them."""
    finish_reason: str = ""
    """"stop", "length", "error", "deadline_exceeded", or "slo_unmet"; empty while the choice goes
    on."""
    error: str = ""
    """Why the choice failed; empty unless the finish reason is one of the last three."""
    retry_after_ms: int = 0
    """Of one whose promise cannot be kept: when it could have been."""
    stats: SequenceStats = SequenceStats()
    """The choice's cost so far."""
    times: StageTimes | None = None
    """When its stages began, if it was not submitted before."""


class Opened(ActorMessage, frozen=True):
    """Comes before the first piece of a request."""

    request_id: str
    """Of the engine; unique among live requests."""
    prompt: tuple[int, ...]
    """The prompt's token ids."""
    options: Options
    """How the request is decoded."""
    committed: tuple[tuple[int, ...], ...] = ()
    """Per choice, tokens already delivered before a crash."""
    ended: tuple[int, ...] = ()
    """Choices that ended before a crash."""


class Generated(ActorMessage, frozen=True):
    """One message per round: every choice that got tokens or ended."""

    pieces: tuple[Piece, ...]
    """In the order of the round's rows."""
    decided_s: float = 0.0
    """When the round's verdict came, on the engine's clock."""


DetokenizerMessage = Opened | Generated | Cancel


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
    """Of the engine; unique among live requests."""
    prompt_count: int
    """Tokens of the prompt."""
    choice: int = 0
    """The first choice of the prompt."""


class Delta(ActorMessage, frozen=True):
    """New text of one choice; it may lag behind its tokens (half a code point or stop string)."""

    request_id: str
    """Of the engine; unique among live requests."""
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
    parts: tuple[ReplyPart, ...] = ()
    """The new text as reasoning, text and calls, if the request has a reply format."""


class Ended(ActorMessage, frozen=True):
    """The end of one choice, with any text still held back."""

    request_id: str
    """Of the engine; unique among live requests."""
    choice: int
    """Number of the choice within its request."""
    finish_reason: str
    """"stop" or "length"."""
    text: str
    """Text that was held back until now."""
    token_count: int
    """Generated tokens, the one that ended the text included."""
    stats: SequenceStats
    """Of the whole choice."""
    stopped_by: str = ""
    """The stop string that was found, if one was."""
    parts: tuple[ReplyPart, ...] = ()
    """The held back text as reasoning, text and calls, if the request has a reply format."""
    reasoning_count: int = 0
    """Generated tokens that were reasoning."""


class Failed(ActorMessage, frozen=True):
    """The last event of a request that could not be served."""

    request_id: str
    """Of the engine; unique among live requests."""
    kind: str
    """"refused" (the request's fault, HTTP 400), "failed" (ours, HTTP 500), "deadline_exceeded"
    (HTTP 504), "slo_unmet" (what it was promised cannot be kept, HTTP 503), or "unavailable" (what
    it needs is away for a moment, HTTP 503)."""
    reason: str
    """One sentence for the client."""
    field: str = ""
    """The request's field that is to blame."""
    retry_after_ms: int = 0
    """Of one whose promise cannot be kept: when it could have been; of one that was unavailable:
    when to try again."""


class Closed(ActorMessage, frozen=True):
    """The answer to a Cancel of a whole request: no message of it will follow."""

    request_id: str
    """Of the engine; unique among live requests."""


Event = Started | Delta | Ended | Failed


class Delivery(ActorMessage, frozen=True):
    """What one piece means for its client: a crash loses all of it or nothing."""

    request_id: str
    """Of the engine; unique among live requests."""
    events: tuple[Event, ...]
    """In the order in which the client reads them."""


RouterMessage = Delivery | Failed | Closed
