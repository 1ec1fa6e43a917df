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
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.requests.further_outputs import NOTHING_FURTHER, FurtherOutputs
from draftwerk.speculative.requests.times import SequenceTimes
from draftwerk.speculative.rounds import (
    NOTHING_LEARNED,
    ChosenLogprob,
    Decision,
    Draft,
    Feedback,
    NewSequence,
    Row,
    VerifiedRow,
)


@dataclass(slots=True)
class Tally:
    """The costs of a sequence so far; counts of tokens unless stated otherwise."""

    cached: int | None = None
    """Prompt tokens found in the prefix cache at first admission; None before it."""
    steps: int = 0
    drafted: int = 0
    accepted_histogram: list[int] = field(default_factory=list[int])
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    preemptions: int = 0
    further: dict[str, Any] = field(default_factory=dict[str, Any])
    """Counts of options that its client is told, by field of `SequenceStats`."""

    def count(self, decision: Decision, draft: Draft) -> None:
        """Add one sampling step."""
        accepted = len(decision.path)
        self.steps += 1
        self.drafted += len(draft.tokens)
        self.accepted_histogram += [0] * (accepted + 1 - len(self.accepted_histogram))
        self.accepted_histogram[accepted] += 1
        hits = sum(draft.sources[node] == "prediction" for node in decision.path)
        self.predicted_accepted += hits
        self.predicted_rejected += draft.sources.count("prediction") - hits


@dataclass(slots=True)
class QueueTurn:
    """When a sequence that waits may go before others."""

    found: int = 0
    """The number of its tokens that were in the prefix cache when it was looked."""
    passing: bool = False
    """Whether it runs though one before it finds no room, for which it gives way."""
    passes: int = 0
    """How often it was."""
    passed: int = 0
    """How many others were while it was waiting."""


def origins(decision: Decision, draft: Draft) -> tuple[str, ...]:
    """Name where each decided token came from: a source, or the target itself.

    The target's own token is "corrected" where a draft stood in its place, "bonus" behind a fully
    accepted draft, and "target" where nothing was drafted.
    """
    if not decision.tokens:
        return ()
    if not draft.tokens:
        return ("target",)
    last = decision.path[-1] if decision.path else -1
    # Something stood behind the last accepted node, or behind the known tokens, and was wrong.
    own = "corrected" if last in draft.parents else "bonus"
    return (*(draft.sources[node] for node in decision.path), own)


S = TypeVar("S", bound="Sequence")


class SequenceProgress(msgspec.Struct, frozen=True):
    """News of one sequence, for its client."""

    sequence: "Sequence"
    tokens: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    logprobs: tuple[ChosenLogprob, ...] = ()
    finish_reason: str = ""
    error: str = ""
    further: FurtherOutputs = NOTHING_FURTHER
    """Outputs of options."""


def with_outputs(progress: SequenceProgress, **outputs: Any) -> SequenceProgress:
    """Return news with further outputs of an option."""
    further = msgspec.structs.replace(progress.further, **outputs)
    return msgspec.structs.replace(progress, further=further)


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
    ) -> None:
        """`preempt_last` frees the blocks of the last in order for a sequence; it returns False if
        that is this one. `finished_ids` are those that the devices are to forget.
        """
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

    def begin(self, tokens_max: int, decoding: "Ordered[Sequence]") -> None:
        """Begin with no rows, of a round that may hold so many tokens."""
        self.tokens_max = self.tokens_left = tokens_max
        self.decoding = decoding
        self.row_count = sum(sequence.row_count for sequence in decoding)

    # --- sequences that are in rounds under way ---------------------------------------------------

    def takes(self, sequence: "Sequence") -> bool:
        """Return whether a sequence may have a row."""
        return not sequence.in_flight

    def may_read(self, sequence: "Sequence") -> bool:
        """Return whether a sequence's prompt may be read on in this round or a like one."""
        return not sequence.in_flight

    def known_max(self, sequence: "Sequence") -> int:
        """Return how many tokens of a sequence are known at most when its row begins."""
        return len(sequence.tokens)

    def reach(self, sequence: "Sequence", stop: int) -> int:
        """Return how far the known tokens of a row reach at most that is planned to `stop`."""
        return stop

    def undecided(self, sequence: "Sequence") -> int:
        """Return how many tokens rounds under way decide of a sequence at least."""
        return 0

    def fields(self, sequence: "Sequence") -> dict[str, Any]:
        """Return further fields of a sequence's row."""
        return {}

    # --- rows -------------------------------------------------------------------------------------

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
    times: SequenceTimes = field(default_factory=SequenceTimes)
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
    holds: int = 0
    """How often it was held back as it entered."""
    held_back: bool = False
    """Whether it runs, and is in no round before what holds it back lets it go."""
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
    def has_another_row(self) -> bool:
        """Whether it has another row, whatever a round under way decides."""
        if self.cancelled or self.ended:
            return False
        # The row under way brings a token at least: behind the last one allowed, a row is in vain.
        return self.pending > 0 or self.request.tokens_max - self.generated > 1

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
