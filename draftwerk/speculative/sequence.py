"""A sequence: one decoding branch of a request, and the rows that it has in rounds.

    rows ──> a round ──> take ──> rows ──> ... ──> ended

A prompt is read in chunks; then tokens are drafted and verified. Options extend that.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockCopy
from draftwerk.speculative.load.tally import QueueTurn, Tally, origins
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.requests.further_outputs import NOTHING_FURTHER, FurtherOutputs
from draftwerk.speculative.requests.times import SequenceTimes
from draftwerk.speculative.rounds import NewSequence, Row, VerifiedRow
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED, Feedback
from draftwerk.speculative.row_parts.row_options import NO_ROW_OPTIONS, RowOptions


class SequenceProgress(msgspec.Struct, frozen=True):
    """News of one sequence, for its client."""

    sequence: "Sequence"
    tokens: tuple[int, ...] = ()
    """Committed token ids; the next two have one entry for each, if the client is told."""
    origins: tuple[str, ...] = ()
    logprobs: tuple[ChosenLogprob, ...] = ()
    finish_reason: str = ""
    error: str = ""
    """Why it failed or is not served, in words for the client."""
    retry_after_s: float = 0.0
    """Seconds after which it could be served in time; 0 if it was not refused for that."""
    further: FurtherOutputs = NOTHING_FURTHER


class Taken(NamedTuple):
    """Changes that the rows of a round made to a sequence."""

    updates: tuple[SequenceProgress, ...] = ()
    verified: VerifiedRow | None = None
    """The row whose draft is to be counted."""
    ends: bool = False
    length: int | None = None
    """Generated tokens of a text that ends."""


class RoundPlan:
    """The rows that a round has so far; one behind rounds under way overrides what it takes."""

    def __init__(
        self,
        pools: CachePools,
        preempt_last: "Callable[[Sequence], bool]",
        finished_ids: list[int],
    ) -> None:
        """`preempt_last` frees the blocks of the last in order; False if that is the one given, or
        none can be. `finished_ids` are those that the devices are to forget."""
        self.pools = pools
        self.preempt_last = preempt_last
        self.finished_ids = finished_ids
        self.tokens_max = self.tokens_left = self.row_count = 0
        self.decoding: Ordered[Sequence] = ()
        """Sequences that have their rows before any prompt."""
        self.unread = 0
        """Tokens of prompts that could be read beside them, up to all of the round."""
        self.rows: list[Row] = []
        self.members: list[Sequence] = []
        """The sequence of each row."""
        self.copies: list[BlockCopy] = []
        self.moves: list[tuple[int, int]] = []
        self.marks: dict[str, Any] = {}
        """Options of a row that begins behind what rounds under way decide."""

    def begin(self, tokens_max: int, decoding: "Ordered[Sequence]") -> None:
        """Begin with no rows, of a round that may hold so many tokens."""
        self.tokens_max = self.tokens_left = tokens_max
        self.decoding = decoding
        self.row_count = sum(sequence.row_count for sequence in decoding)

    def takes(self, sequence: "Sequence") -> bool:
        """Return whether a sequence may have a row."""
        return not sequence.in_flight

    def may_read(self, sequence: "Sequence") -> bool:
        """Return whether a sequence's prompt may be read on."""
        return not sequence.in_flight

    def undecided(self, sequence: "Sequence") -> int:
        """Return how many tokens at most rounds under way decide, behind which its row begins."""
        return 0

    def add(self, sequence: "Sequence", count_max: int, draft_max: int = 0) -> None:
        """Add a sequence's rows, if blocks can be had for them."""
        rows = sequence.rows(self, count_max, draft_max)
        for row in rows:
            self.rows.append(row)
            self.members.append(sequence)
            # Drafts count before they are made: their room in the batch and their slots are taken.
            self.tokens_left -= row.token_count + row.draft_max
        sequence.in_flight += bool(rows)

    def make_room(self, sequence: "Sequence", has_room: Callable[[], bool]) -> bool:
        """Preempt the last in order until there is room; False if that was this one, or none is."""
        while not has_room():
            if not self.preempt_last(sequence):
                return False
        return True


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens and where their KV is; only the scheduler changes one.

    tokens   0 ........ prompt_count ........ computed ........ len(tokens)
             |  the prompt  |        generated, committed            |
             |            KV is in the pages     |  to be computed   |
    """

    sequence_id: int
    request: SequenceRequest
    tokens: list[int]
    memory: SequenceMemory
    times: SequenceTimes = field(default_factory=SequenceTimes)
    queue_key: int = 0
    """Its place among all sequences, set when it is submitted: priority, softened by age."""
    leader: "Sequence | None" = None
    """The choice that reads the shared prompt; this one waits, then finds it cached."""
    computed: int = 0
    planned: int = 0
    """Known tokens that are computed once all rounds in flight are."""
    sent_count: int = 0
    """Tokens sent to the devices; 0 means that they must be sent a NewSequence."""
    in_flight: int = 0
    """Rounds under way that have a row of it."""
    feedback: Feedback = NOTHING_LEARNED
    """Feedback of the newest decision, until it is sent to the draft sources."""
    held_back: bool = False
    """Whether it runs, and is in no round before it is let go."""
    cancelled: bool = False
    ended: bool = False
    turn: QueueTurn = field(default_factory=QueueTurn)
    tally: Tally = field(default_factory=Tally)

    # --- how far it is --------------------------------------------------------------------------

    @property
    def row_count(self) -> int:
        """Rows that it has in a round in which it decodes."""
        return 1

    @property
    def pending(self) -> int:
        """Known tokens whose KV is neither computed nor being computed."""
        return len(self.tokens) - self.planned

    @property
    def unread(self) -> int:
        """Pending tokens that it reads in a row of its own."""
        return self.pending

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.request.prompt_count

    @property
    def prefilled(self) -> bool:
        """Whether siblings need not wait: the whole prompt is in the pages, or it has ended."""
        return self.ended or self.computed >= self.request.prompt_count

    # --- memory ---------------------------------------------------------------------------------

    @property
    def reusable(self) -> list[int]:
        """Known tokens of which all but the last may be found cached, without logits or states."""
        return self.tokens

    def looked_for(self) -> Iterator[tuple[int, ...]]:
        """Yield the tokens whose blocks it looks for as it enters, and later."""
        yield tuple(self.reusable[:-1])

    def memories(self) -> list[SequenceMemory]:
        """Return every memory that belongs to it."""
        return [self.memory]

    def entry_blocks(self, pool: BlockPool) -> int:
        """Return how many blocks it takes at once when it enters."""
        return pool.blocks_for(len(self.tokens))

    def enter(self) -> bool:
        """Find its prefix, and take blocks for the rest; False if there are too few."""
        found = self.memory.enter(self.reusable)
        if found is None:
            return False
        # What was found stays held: who admits it calls `leave` after a failure.
        if not self.memory.reserve(len(self.tokens)):
            return False
        self.computed = self.planned = found
        return True

    def leave(self) -> list[int]:
        """Give back every block; return the ids of branches that devices are to forget."""
        self.memory.leave()
        return []

    def forget(self) -> None:
        """Have nothing served again of what was computed for it."""
        self.memory.forget()

    def check(self) -> None:
        """Assert that what is computed has a place."""
        assert self.computed <= self.memory.slots, "KV outside the table"

    # --- planning -------------------------------------------------------------------------------

    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        """Return its rows of a round, with so many known tokens and drafts at most; none where
        blocks cannot be had, or where it has nothing to compute."""
        count = min(max(1, self.unread), plan.tokens_left, count_max, plan.pools.chunk_max)
        if draft_max:
            # Half of the free blocks, in equal shares: drafts must not take what the next rows
            # need.
            undecided = plan.undecided(self)
            free = self.memory.free_slots(len(self.tokens) + undecided, 2 * plan.row_count)
            # A row under way decides one token at least.
            room = self.draft_room(min(1, undecided))
            draft_max = min(draft_max, room, free, plan.tokens_left - count)
        row = self.row(plan, self.planned, self.planned + count, draft_max) if count else None
        return [] if row is None else [row]

    def draft_room(self, undecided: int = 0) -> int:
        """Return how many drafted tokens could be of use behind so many that are undecided: the
        target adds one of its own."""
        left = self.request.tokens_max - self.generated - undecided
        return max(0, min(self.request.draft_max, left - 1))

    def row(self, plan: RoundPlan, start: int, stop: int, draft_max: int) -> Row | None:
        """Return a row if blocks can be had, with as many drafts as fit."""
        sent_count, undecided = self.sent_count, plan.undecided(self)
        end = len(self.tokens) + undecided if undecided else stop
        draft_max = min(draft_max, plan.pools.draft_max)
        reserve = self.memory.reserve_row
        # Drafts are given up first, then blocks of the last.
        if not (reserve(end + draft_max) or plan.make_room(self, lambda: reserve(end))):
            return None
        samples = stop >= len(self.tokens)
        memory = self.memory.begin_row(start, stop, end, draft_max if samples else 0)
        # No room for copies: the last in order gives way, and this row is tried again in the next
        # round.
        if memory is None:
            plan.preempt_last(self)
            return None
        plan.copies.extend(memory.copies)
        options = memory.options | plan.marks if undecided else memory.options
        row = Row(
            sequence_id=self.sequence_id,
            start=start,
            stop=stop,
            samples=samples,
            draft_max=memory.draft_max,
            new_token_ids=tuple(self.tokens[sent_count:]) if sent_count else (),
            new_sequence=None if sent_count else self.new_sequence(),
            tokens_left=self.request.tokens_max - self.generated,
            feedback=self.feedback,
            blocks=memory.blocks,
            options=RowOptions(**options) if options else NO_ROW_OPTIONS,
        )
        # As good as arrived: a device reads its rounds in the order in which they are planned.
        self.sent_count = len(self.tokens)
        self.planned = min(stop, len(self.tokens))
        self.feedback = NOTHING_LEARNED
        return row

    def new_sequence(self) -> NewSequence:
        """Return all that the devices need before its first row."""
        return NewSequence(
            tuple(self.tokens),
            self.request.prompt_count,
            self.request.sampling,
            self.request.methods,
            self.request.name_space,
            self.request.prediction,
            self.request.options,
        )

    # --- committing -----------------------------------------------------------------------------

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        """Take in its rows of a round, none of which has failed."""
        ((row, decision, draft),) = parts
        if not row.samples:
            self.advance_computed(row.stop)
            return Taken()
        assert decision.tokens, "a row was left out whose text goes on"
        self.times.begin_decode(now_s)
        known = len(self.tokens)
        kept, finish_reason = self.extend(decision.tokens)
        self.feedback = decision.feedback
        # The last token's KV is computed in the next round.
        self.advance_computed(min(known + len(decision.path), len(self.tokens)))
        if self.in_flight:  # a row that continues this one: the device knows the new tokens
            self.planned = self.sent_count = len(self.tokens)
        else:
            self.planned = self.computed
        self.tally.count(decision, draft)
        self.times.keep_time(self.generated - self.request.written_count, now_s)
        progress = SequenceProgress(
            self,
            decision.tokens[:kept],
            origins(decision, draft)[:kept],
            decision.logprobs[:kept],
            finish_reason,
        )
        ends = bool(finish_reason)
        return Taken((progress,), parts[0], ends, self.generated if ends else None)

    def advance_computed(self, computed: int) -> None:
        """Take in how far it is computed, and name what is full."""
        start, self.computed = self.computed, computed
        self.memory.commit(self.tokens, start, computed)

    def extend(self, tokens: tuple[int, ...]) -> tuple[int, str]:
        """Append decided tokens up to the end of the text; returns how many were kept, and the
        finish reason, "" if the text goes on."""
        # The prompt was only to be read: the target's token behind it is not wanted.
        if self.request.tokens_max <= self.request.written_count:
            return 0, "length"
        for kept, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            if token in self.request.sampling.stop_token_ids:
                return kept, "stop"
            if self.generated >= self.request.tokens_max:
                return kept, "length"
        return len(tokens), ""


def awaits_leader(sequence: Sequence) -> bool:
    """Return whether the choice that reads its prompt has not read all of it."""
    return sequence.leader is not None and not sequence.leader.prefilled


def known_slots(sequence: Sequence) -> int:
    """Return how many of its tokens `enter` would find computed, about, and take nothing."""
    return sequence.memory.known(sequence.reusable)
