"""Every message that crosses a mailbox, grouped by who receives it: plain data, no tensors."""

import msgspec

from draftwerk.speculative.protocol.rounds import ChosenLogprob, Draft, Verdict
from draftwerk.speculative.sampling.params import Sampling


class ActorMessage(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of all messages; the tag makes a logged one self-describing."""


# --- what a client asks for -------------------------------------------------------------------


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str
    name: str = ""
    """Of the participant, for templates that show it."""
    tokens: tuple[int, ...] = ()
    """Of an earlier answer: the tokens that it was generated as, where they are known."""


class Chat(msgspec.Struct, frozen=True, tag=True):
    """A conversation, to be rendered by the model's chat template."""

    messages: tuple[ChatMessage, ...]


Prompt = Chat | str | tuple[int, ...]


class Speculation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request wants to be drafted for; the text is the same in any case."""

    enabled: bool = True
    methods: tuple[str, ...] | None = None
    """Names of draft sources; None means every source the server runs."""
    draft_max: int | None = None
    """Drafted tokens per round at most."""
    prediction: str = ""
    """The text the client expects."""


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, its numbers already checked by the door."""

    sampling: Sampling
    """Without branch and stop tokens: the engine fills those in."""
    tokens_max: int | None = None
    """Generated tokens per choice; None means as many as the context holds."""
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    choices: int = 1
    beam_width: int = 1
    """Above 1 the choices are the best texts of a beam search; above temperature 0, texts drawn
    without replacement."""
    length_penalty: float = 1.0
    """Of a beam search: a text's log-probability is divided by its length to this power."""
    early_stopping: bool = False
    """Of a beam search: whether as many finished texts as the beam is wide are enough."""
    shows_hypotheses: bool = False
    """Whether deltas carry the best text of a beam search so far, final or not."""
    echo: bool = False
    """Whether the prompt's text comes first in each choice."""
    speculation: Speculation = Speculation()
    tenant: str = ""
    """The API key's name."""
    cache_salt: str = ""
    """Replaces the tenant in `name_space`, so that callers may share one or split their own."""
    priority: int = 0
    """Lower is sooner."""

    @property
    def name_space(self) -> str:
        """Within what cached blocks and finished outputs are shared; salts never meet tenants."""
        return f"salt {self.cache_salt}" if self.cache_salt else f"tenant {self.tenant}"


# --- to the tokenizer --------------------------------------------------------------------------


class Submit(ActorMessage, frozen=True):
    request_id: str
    prompt: Prompt
    options: Options
    committed: tuple[tuple[int, ...], ...] = ()
    """Per choice, tokens already delivered before a crash; empty on a first submission."""
    ended: tuple[int, ...] = ()
    """Choices that ended before a crash."""


class Cancel(ActorMessage, frozen=True):
    """Follows the data's path, so it never overtakes the request it ends."""

    request_id: str
    choice: int | None = None
    """None means all of them."""


TokenizerMessage = Submit | Cancel


# --- to the cache -------------------------------------------------------------------------------


class Encoded(ActorMessage, frozen=True):
    request_id: str
    tokens: tuple[int, ...]
    options: Options
    prediction: tuple[int, ...] = ()
    committed: tuple[tuple[int, ...], ...] = ()
    ended: tuple[int, ...] = ()


class Decided(ActorMessage, frozen=True):
    verdict: Verdict
    drafts: tuple[Draft, ...]
    """What was verified, one draft per row."""


CacheMessage = Encoded | Cancel | Decided


# --- to the detokenizer ---------------------------------------------------------------------------


class SequenceStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice cost; counts of tokens unless said."""

    prompt_count: int = 0
    cached_count: int = 0
    """Prompt tokens whose KV came from the prefix cache."""
    step_count: int = 0
    """Device steps that sampled for this choice."""
    draft_count: int = 0
    accepted_histogram: tuple[int, ...] = ()
    """Entry j: steps in which j drafted tokens were accepted."""
    predicted_accepted: int = 0
    """Accepted tokens that the client's `prediction` proposed, and rejected ones."""
    predicted_rejected: int = 0
    preemption_count: int = 0
    score: float | None = None
    """Of a finished beam search's text: its log-probability over the length penalty."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one round committed to one choice."""

    request_id: str
    choice: int
    tokens: tuple[int, ...]
    origins: tuple[str, ...] = ()
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    logprobs: tuple[ChosenLogprob, ...] = ()
    hypothesis: tuple[int, ...] = ()
    """All tokens of the best text of a beam search so far, if its client wants to know."""
    finish_reason: str = ""
    """"stop", "length", or "error"; empty while the choice goes on."""
    error: str = ""
    stats: SequenceStats = SequenceStats()
    """So far."""


class Opened(ActorMessage, frozen=True):
    """Comes before the first piece of a request."""

    request_id: str
    prompt: tuple[int, ...]
    options: Options
    committed: tuple[tuple[int, ...], ...] = ()
    ended: tuple[int, ...] = ()


class Generated(ActorMessage, frozen=True):
    """One message per round: every choice that got tokens or ended."""

    pieces: tuple[Piece, ...]


DetokenizerMessage = Opened | Generated | Cancel


# --- to the door ----------------------------------------------------------------------------------


class TokenText(msgspec.Struct, frozen=True):
    """A token with its log-probability, as text and as the bytes it stands for."""

    token_id: int
    text: str
    data: bytes
    logprob: float
    top: tuple["TokenText", ...] = ()


class Started(ActorMessage, frozen=True):
    """The first event of a request that was taken: its prompt has been tokenized."""

    request_id: str
    prompt_count: int
    choice: int = 0
    """The first choice of the prompt."""


class Delta(ActorMessage, frozen=True):
    """New text of one choice; it may lag behind its tokens (half a code point or stop string)."""

    request_id: str
    choice: int
    text: str
    tokens: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    logprobs: tuple[TokenText, ...] = ()
    hypothesis: str = ""
    """The best text of a beam search so far, which may still change behind its final part."""


class Ended(ActorMessage, frozen=True):
    """The end of one choice, with any text still held back."""

    request_id: str
    choice: int
    finish_reason: str
    """"stop" or "length"."""
    text: str
    token_count: int
    """Generated tokens, the one that ended the text included."""
    stats: SequenceStats
    stopped_by: str = ""
    """The stop string that was found, if one was."""


class Failed(ActorMessage, frozen=True):
    """The last word of a request that could not be served."""

    request_id: str
    kind: str
    """"refused" (the request's fault, HTTP 400) or "failed" (ours, HTTP 500)."""
    reason: str
    field: str = ""
    """The request's field that is to blame."""


class Closed(ActorMessage, frozen=True):
    """The answer to a Cancel of a whole request: no message of it will follow."""

    request_id: str


Event = Started | Delta | Ended | Failed


class Delivery(ActorMessage, frozen=True):
    """What one piece means for its client: a crash loses all of it or nothing."""

    request_id: str
    events: tuple[Event, ...]


RouterMessage = Delivery | Failed | Closed
