"""Every message that crosses a mailbox, grouped by who receives it: plain data, no tensors."""

import msgspec

from draftwerk.actors.events.client_events import Event, Failed
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.speculative.request import EncodedRequest, EngineRequest, OneRequest
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.further_outputs import NOTHING_FURTHER, FurtherOutputs
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.rounds import Verdict
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob

# --- to the tokenizer --------------------------------------------------------------------------


class Submit(EngineRequest, frozen=True, tag=True, kw_only=True):
    """A new request, or one that is submitted again after a crash."""

    prompt: Prompt
    """A conversation, a text, or token ids."""


class Cancel(OneRequest, frozen=True, tag=True):
    """Follows the data's path, so it never overtakes the request it ends."""

    choice: int | None = None
    """None means all of them."""


TokenizerMessage = Submit | Cancel


# --- to the cache -------------------------------------------------------------------------------


class Released(msgspec.Struct, frozen=True):
    """A sequence that was held back is let go."""


CacheMessage = EncodedRequest | Cancel | Verdict | Released


# --- to the detokenizer ---------------------------------------------------------------------------


class ChoiceUpdate(OneRequest, frozen=True, kw_only=True):
    """The tokens that one round committed to one choice."""

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
    """"stop" or "length", or the kind of `Failed` that it is; empty while the choice goes on."""
    error: str = ""
    """Why the choice failed; empty unless it did."""
    retry_after_ms: int = 0
    """When a request that is not served could have been."""
    stats: SequenceStats = SequenceStats()
    """The choice's cost so far."""
    times: StageTimes | None = None
    """When its stages began, if it was not submitted before."""


class RoundOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """One message per round: every choice that got tokens or ended."""

    pieces: tuple[ChoiceUpdate, ...]
    """In the order of the round's rows."""
    decided_s: float = 0.0
    """When the round's verdict came, on the engine's clock."""


DetokenizerMessage = EncodedRequest | RoundOutputs | Cancel


# --- to the ledger --------------------------------------------------------------------------------


class RequestEvents(OneRequest, frozen=True):
    """What one piece means for its client: a crash loses all of it or nothing."""

    events: tuple[Event, ...]
    """In the order in which the client reads them."""


class Closed(OneRequest, frozen=True):
    """The answer to a Cancel of a whole request: no message of it will follow."""


RouterMessage = RequestEvents | Failed | Closed
