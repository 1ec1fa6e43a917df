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


class Cancel(OneRequest, frozen=True, tag=True):
    """Follows the data's path, so it never overtakes the request it ends."""

    choice: int | None = None
    """None means all of them."""


TokenizerMessage = Submit | Cancel


# --- to the cache -------------------------------------------------------------------------------


class Released(msgspec.Struct, frozen=True):
    """A sequence that an attachment held back is let go: another round may be planned."""


CacheMessage = EncodedRequest | Cancel | Verdict | Released


# --- to the detokenizer ---------------------------------------------------------------------------


class ChoiceUpdate(OneRequest, frozen=True, kw_only=True):
    """The tokens that one round committed to one choice: `SequenceProgress` as plain data."""

    choice: int
    tokens: tuple[int, ...]
    origins: tuple[str, ...] = ()
    logprobs: tuple[ChosenLogprob, ...] = ()
    further: FurtherOutputs = NOTHING_FURTHER
    finish_reason: str = ""
    """"stop" or "length", or the kind of `Failed` that it is; empty while the choice goes on."""
    error: str = ""
    retry_after_ms: int = 0
    stats: SequenceStats = SequenceStats()
    times: StageTimes | None = None
    """When its stages began, if it was not submitted before."""


class RoundOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice that got tokens in a round, or ended, groups last; or that is rejected."""

    pieces: tuple[ChoiceUpdate, ...]
    decided_s: float = 0.0
    """When the round's verdict came, on the engine's clock."""


DetokenizerMessage = EncodedRequest | RoundOutputs | Cancel


# --- to the ledger --------------------------------------------------------------------------------


class RequestEvents(OneRequest, frozen=True):
    """What one piece means for its client: a crash loses all of it or nothing."""

    events: tuple[Event, ...]


class Closed(OneRequest, frozen=True):
    """The answer to a Cancel of a whole request: no message of it will follow."""


RouterMessage = RequestEvents | Failed | Closed
