"""The costs of one choice, for its client."""

import msgspec

from draftwerk.speculative.requests.further_outputs import NOTHING_COUNTED, FurtherCounts
from draftwerk.speculative.sequence import Sequence


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
    waited_s: float | None = None
    """From its arrival at the engine until its own tokens were computed; None if it was submitted
    before."""
    device_wait_s: float | None = None
    """The part of it in front of the model process."""
    read_s: float | None = None
    """From there to its first tokens."""
    further: FurtherCounts = NOTHING_COUNTED
    """Counts of options."""

    @classmethod
    def of(cls, sequence: Sequence) -> "SequenceStats":
        """Return what a sequence cost so far."""
        tally, times = sequence.tally, sequence.times.stages
        further = tally.further
        return cls(
            prompt_count=sequence.request.prompt_count + sequence.request.written_count,
            cached_count=tally.cached or 0,
            step_count=tally.steps,
            draft_count=tally.drafted,
            accepted_histogram=tuple(tally.accepted_histogram),
            predicted_accepted=tally.predicted_accepted,
            predicted_rejected=tally.predicted_rejected,
            waited_s=None if times is None else times.waited_s,
            device_wait_s=None if times is None else times.device_wait_s,
            read_s=None if times is None else times.read_s,
            further=FurtherCounts(**further) if further else NOTHING_COUNTED,
        )
