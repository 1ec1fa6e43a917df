"""A sequence: one decoding branch of a request, and the rows that it has in rounds.

    rows ──> a round ──> take ──> rows ──> ... ──> ended

A plain request is a text (`text_sequence.py`); options extend that.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockCopy
from draftwerk.speculative.protocol.feedback import NOTHING_LEARNED, Feedback
from draftwerk.speculative.protocol.rounds import ChosenLogprob, NewSequence, Row, VerifiedRow
from draftwerk.speculative.requests.pooling import PoolingOutput
from draftwerk.speculative.requests.request import SequenceRequest
from draftwerk.speculative.requests.slo import Deadlines
from draftwerk.speculative.requests.tally import QueueTurn, ScoredTokens, Tally

S = TypeVar("S", bound="Sequence")


class SequenceProgress(msgspec.Struct, frozen=True):
    """News of one sequence, for its client."""

    sequence: "Sequence"
    tokens: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    logprobs: tuple[ChosenLogprob, ...] = ()
    finish_reason: str = ""
    error: str = ""
    hypothesis: tuple[int, ...] = ()
    """All tokens of the best text of a search so far, if the client asked for it."""
    scores: tuple[float, ...] = ()
    """Per token, the score of a search's text that ends with it."""
    scored: ScoredTokens | None = None
    """Prompt tokens whose log-probabilities have become known."""
    margin: float | None = None
    """By how much the last token beats the one that was given in its place, in nats."""
    pooling_output: PoolingOutput | None = None
    """The result of a prompt that was only to be read."""


class Taken(NamedTuple):
    """Changes that the rows of a round made to a sequence."""

    updates: tuple[SequenceProgress, ...] = ()
    verified: VerifiedRow | None = None
    """The draft that was verified, to be counted."""
    ends: bool = False
    length: int | None = None
    """Generated tokens of a text that ends."""


class RoundPlan:
    """The rows that a round has so far. One that finds no blocks is not added."""

    def __init__(
        self,
        pools: CachePools,
        preempt_last: "Callable[[Sequence], bool]",
        finished_ids: list[int],
        tokens_max: int,
        before: dict[int, Row],
        decoding: "Ordered[Sequence]" = (),
    ) -> None:
        """`preempt_last` frees the blocks of the last in order for a sequence; it returns False if
        that is this one. `finished_ids` are those that the devices are to forget. `before` are the
        rows under way that this round is planned behind, by sequence id.
        """
        self.pools = pools
        self.preempt_last = preempt_last
        self.finished_ids = finished_ids
        self.tokens_max = self.tokens_left = tokens_max
        self.before = before
        self.decoding = decoding
        """Sequences that have their rows before any prompt."""
        self.row_count = sum(sequence.row_count for sequence in decoding)
        self.unread = 0
        """Tokens of prompts that could be read beside them, up to all of the round."""
        self.rows: list[Row] = []
        self.members: list[Sequence] = []
        """The sequence of each row."""
        self.copies: list[BlockCopy] = []
        self.moves: list[tuple[int, int]] = []

    def add(self, sequence: "Sequence", count_max: int, draft_max: int = 0) -> None:
        """Add a sequence's rows, if blocks can be had for them."""
        rows = sequence.rows(self, count_max, draft_max)
        for row in rows:
            self.rows.append(row)
            self.members.append(sequence)
            # Drafts count before they are made: their room in the batch and their slots are taken.
            self.tokens_left -= row.token_count + row.draft_max
        sequence.in_flight += bool(rows)

    def free(self, sequence: "Sequence", counts: Mapping[BlockPool, int]) -> bool:
        """Make so many blocks of each pool available at the cost of the last in order; False if
        that was the sequence itself."""
        while not self.pools.has(counts):
            if not self.preempt_last(sequence):
                return False
        return True

    def reserve(self, sequence: "Sequence", stop: int, draft_max: int) -> bool:
        """Reserve a row's slots; drafts are given up first, then blocks of the last."""
        if sequence.memory.reserve_row(stop + draft_max):
            return True
        while not sequence.memory.reserve_row(stop):
            if not self.preempt_last(sequence):
                return False
        return True


@dataclass(slots=True, eq=False)
class Sequence(ABC):
    """Tokens and where their KV is; only the scheduler changes one.

    tokens   0 ........ prompt_count ........ computed ........ len(tokens)
             |  the prompt  |        generated, committed            |
             |            KV is in the pages     |  to be computed   |
    """

    sequence_id: int
    request: SequenceRequest
    tokens: list[int]
    memory: SequenceMemory
    deadlines: Deadlines = field(default_factory=Deadlines)
    queue_key: int = 0
    """Its place among all sequences, set when it is submitted: priority, softened by age."""
    leader: "Sequence | None" = None
    """The choice that computes the shared prompt; this one waits, then finds it cached."""
    awaited: "AwaitedPrefix | None" = None
    """The prompt that it waits for, if one that is being read begins like its own."""
    computed: int = 0
    planned: int = 0
    """Known tokens that are computed once all rounds in flight are."""
    sent_count: int = 0
    """Tokens sent to the devices; 0 means that they must be sent a NewSequence."""
    in_flight: int = 0
    """Rounds under way that have a row of it."""
    feedback: Feedback = NOTHING_LEARNED
    """Feedback of the newest decision, until it is sent to the draft sources."""
    fetches: int = 0
    """How often its blocks were asked for in a second tier: once for each time that it enters."""
    fetching: bool = False
    """Whether it runs, and is in no round before they have come."""
    cancelled: bool = False
    ended: bool = False
    turn: QueueTurn = field(default_factory=QueueTurn)
    tally: Tally = field(default_factory=Tally)

    # --- kinds of sequences ---------------------------------------------------------------------

    in_line: ClassVar = True
    """Whether its tokens are read one after another, as those of another with this beginning."""
    draft_factor: ClassVar = 1
    """Drafts that its rows may carry, in those of a text."""
    runs_ahead: ClassVar = True
    """Whether rounds may be planned while its rows are under way."""

    @property
    def row_count(self) -> int:
        """Rows that it has in a round in which it decodes."""
        return 1

    @property
    def steps(self) -> int:
        """Steps of a search that were taken."""
        return 0

    def extended(self, kind: type[S], **own: Any) -> S:
        """Return a sequence that has not begun as one of another kind, on top of its own."""
        begun_with = {each.name: getattr(self, each.name) for each in fields(self)}
        return _kind(kind, type(self))(**begun_with, **own)

    # --- how far it is --------------------------------------------------------------------------

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
    def begun(self) -> bool:
        """Whether its request has a token: then it is served to its end, whenever that is."""
        if self.request.had_tokens or (self.leader is not None and self.leader.begun):
            return True
        return self.has_output

    @property
    def has_output(self) -> bool:
        """Whether it has a token beyond what it was given."""
        return self.generated > self.request.written_count

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the pages, so that a sibling can find it there."""
        return self.ended or self.computed >= self.request.prompt_count

    @property
    def continues(self) -> bool:
        """Whether a round under way decides its next token, so that its next row continues it."""
        return self.in_flight > 0 and self.pending == 0

    @property
    def goes_on(self) -> bool:
        """Whether it has another row, whatever the round under way decides."""
        if self.cancelled or self.ended:
            return False
        # The row under way brings a token at least: behind the last one allowed, a row is in vain.
        return not self.continues or self.request.tokens_max - self.generated > 1

    def known_max(self, before: Row | None) -> int:
        """Return how many tokens are known at most when a row of it begins behind another one."""
        known = len(self.tokens)
        return known + 1 + before.draft_max if before is not None and self.continues else known

    # --- memory ---------------------------------------------------------------------------------

    @property
    def reusable(self) -> list[int]:
        """Known tokens of which all but the last may be found in the prefix cache: a block that is
        found has no logits and no states."""
        return self.tokens

    def looked_for(self) -> Iterator[tuple[int, ...]]:
        """Yield the tokens whose blocks it looks for as it enters, and later."""
        yield tuple(self.reusable[:-1])

    def memories(self) -> list[SequenceMemory]:
        """Return every memory that belongs to it."""
        return [self.memory]

    def further_blocks(self, pool: BlockPool) -> int:
        """Return how many blocks it needs at once beyond those of its tokens."""
        return 0

    def enter(self) -> bool:
        """Find its prefix, and take blocks for the rest; False if there are too few."""
        found = self.memory.enter(self.reusable)
        if found is None:
            return False
        found = self.go_on_behind(found)
        # What was found stays held: who admits it calls `leave` after a failure.
        if not self.memory.reserve(len(self.tokens)):
            return False
        self.computed = self.planned = found
        return True

    def go_on_behind(self, found: int) -> int:
        """Return how many of the tokens that were found it keeps."""
        return found

    def counts(self) -> dict[str, Any]:
        """Return further counts that its client is told."""
        return {}

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

    # --- rounds ---------------------------------------------------------------------------------

    @abstractmethod
    def new_sequence(self) -> NewSequence:
        """Return everything that the devices need before this sequence's first row."""

    @abstractmethod
    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        """Return its part of a round: at most `count_max` known tokens, and drafts behind the last
        of them. None where blocks cannot be had, or where it has nothing to compute."""

    @abstractmethod
    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        """Take in its rows of a round, none of which has failed."""


class AwaitedPrefix(NamedTuple):
    """Tokens that two prompts begin with."""

    reader: Sequence
    length: int


@cache
def _kind(kind: type[S], base: type[Sequence]) -> type[S]:
    """Return a class of sequences that are of both kinds; the first overrides the second."""
    if base in kind.__mro__:
        return kind
    both: Any = type(f"{kind.__name__}{base.__name__}", (kind, base), {})
    return dataclass(eq=False)(both)


def awaits_leader(sequence: Sequence) -> bool:
    """Return whether the choice that reads its prompt has not read all of it."""
    return sequence.leader is not None and not sequence.leader.prefilled


def held_blocks(sequence: Sequence) -> int:
    """Return how many blocks all memories of a sequence name."""
    return sum(memory.block_count for memory in sequence.memories())


def entry_blocks(sequence: Sequence, pool: BlockPool) -> int:
    """Return how many blocks a sequence that waits takes at once."""
    return pool.blocks_for(len(sequence.tokens)) + sequence.further_blocks(pool)


def known_slots(sequence: Sequence) -> int:
    """Return how many of its tokens `enter` would find computed, about, and take nothing."""
    return sequence.memory.known(sequence.reusable)
