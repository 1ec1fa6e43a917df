"""A sequence: one decoding branch of a request, and its state in the scheduler."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import SequenceMemory
from draftwerk.speculative.protocol.feedback import NOTHING_LEARNED, Feedback
from draftwerk.speculative.protocol.rounds import ChosenLogprob, NewSequence, Row
from draftwerk.speculative.requests.sequence_request import SequenceRequest
from draftwerk.speculative.requests.slo import Deadlines
from draftwerk.speculative.requests.tally import QueueTurn, ScoredTokens, Tally

if TYPE_CHECKING:
    from draftwerk.speculative.blend.blending import Blending


class AwaitedPrefix(NamedTuple):
    """Tokens that two prompts begin with."""

    reader: "Sequence"
    length: int


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
    deadlines: Deadlines = field(default_factory=Deadlines)
    queue_key: int = 0
    """Its place among all sequences, set when it is submitted: priority, softened by age."""
    leader: "Sequence | None" = None
    """The choice that computes the shared prompt; this one waits, then finds it cached."""
    awaited: "AwaitedPrefix | None" = None
    """What it waits for, if another prompt that is being read begins like its own."""
    blending: "Blending | None" = None
    """What becomes of the segments of its prompt, if some are reused."""
    computed: int = 0
    planned: int = 0
    """What of the known tokens is computed once all rounds in flight are."""
    scored: int = 0
    """Prompt tokens whose log-probability was reported or state was added, or is not wanted."""
    sent_count: int = 0
    """Tokens sent to the devices; 0 means that they must be sent a NewSequence."""
    in_flight: int = 0
    """Rounds under way that have a row of it."""
    feedback: Feedback = NOTHING_LEARNED
    """Of the newest decision, until it is sent to the draft sources."""
    fetches: int = 0
    """How often its blocks were asked for in a second tier: once for each time that it enters."""
    fetching: bool = False
    """Whether it runs, and is in no round before they have come."""
    cancelled: bool = False
    ended: bool = False
    turn: QueueTurn = field(default_factory=QueueTurn)
    tally: "Tally" = field(default_factory=lambda: Tally())

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
    def output(self) -> list[int]:
        """The generated tokens."""
        return self.tokens[self.request.prompt_count :]

    @property
    def scores(self) -> bool:
        """Whether every prompt token from `scored` on is still to be computed for a report."""
        return self.request.prompt_logprobs >= 0 and self.scored < self.request.prompt_count

    @property
    def reusable(self) -> list[int]:
        """The known tokens of which all but the last may be found in the prefix cache: a block
        that is found has no logits and no states."""
        return self.tokens[: max(1, self.scored)] if self.scores else self.tokens

    def scored_span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the positions of a row after which something is to be reported."""
        if not self.scores:
            return 0, 0
        first = max(start, self.scored - 1)
        return first, max(first, min(stop, self.request.prompt_count - 1))

    def score(self, row: Row, logprobs: tuple[ChosenLogprob, ...]) -> "ScoredTokens | None":
        """Take in what a row has reported of the prompt; returns what is new.

        Nothing comes before the first token: it is certain.
        """
        if row.prompt_logprobs < 0 or not self.scores:
            return None
        start, stop = self.scored, min(row.stop, self.request.prompt_count - 1) + 1
        self.scored = max(start, stop)
        if not start:
            logprobs = (ChosenLogprob(0.0), *logprobs)
        return ScoredTokens(tuple(self.tokens[start : self.scored]), logprobs)

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
    def row_count(self) -> int:
        """Rows that it has in a round in which it decodes."""
        return 1

    @property
    def steps(self) -> int:
        """Steps of a search that were taken."""
        return 0

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the pages, so that a sibling can find it there."""
        return self.ended or self.computed >= self.request.prompt_count

    def new_sequence(self) -> NewSequence:
        """Return everything that the devices need before this sequence's first row."""
        return NewSequence(
            tuple(self.tokens),
            self.request.prompt_count,
            self.request.sampling,
            self.request.methods,
            self.request.name_space,
            self.request.prediction,
            self.request.given,
            self.request.adapter,
        )

    def memories(self) -> list[SequenceMemory]:
        """Return every memory that belongs to it."""
        return [self.memory, *(self.blending.memories() if self.blending is not None else ())]

    def further_blocks(self, pool: BlockPool) -> int:
        """Return how many blocks it needs at once beyond those of its tokens.

        A search does as soon as its members branch off, a blended prompt with its first segment.
        """
        return 0 if self.blending is None else pool.blocks_for(self.blending.room)

    def enter(self) -> bool:
        """Find its prefix, and take blocks for the rest; False if there are too few."""
        found = self.memory.enter(self.reusable)
        if found is None:
            return False
        if self.blending is not None:
            found = self.blending.begin(self.memory, found)
        if not self.memory.reserve(len(self.tokens)):
            return False
        self.computed = self.planned = found
        return True

    def leave(self) -> list[int]:
        """Give back every block; return the ids of branches that devices are to forget."""
        self.memory.leave()
        if self.blending is not None:
            self.blending.reset()
        return []

    def forget(self) -> None:
        """Have nothing served again of what was computed for it."""
        for memory in Sequence.memories(self):
            memory.forget()

    def check(self) -> None:
        """Assert that what is computed has a place."""
        assert self.computed <= self.memory.slots, "KV outside the table"
        if self.blending is not None:
            self.blending.check()

    @property
    def blends(self) -> bool:
        """Whether rows of its blend are still to come, or not all answered."""
        return self.blending is not None and self.computed < self.blending.stop

    @property
    def continues(self) -> bool:
        """Whether a round under way decides its next token, so that its next row continues it."""
        return self.in_flight > 0 and self.pending == 0

    def known_max(self, before: Row | None) -> int:
        """Return how many tokens are known at most when a row of it begins behind another one."""
        known = len(self.tokens)
        return known + 1 + before.draft_max if before is not None and self.continues else known

    def draft_room(self) -> int:
        """Return how many drafted tokens could still be of use: the target adds one of its own."""
        left = self.request.tokens_max - self.generated - self.continues
        return max(0, min(self.request.draft_max, left - 1))

    def extend(self, tokens: tuple[int, ...]) -> tuple[int, str]:
        """Append decided tokens up to the end of the text.

        Returns how many were kept and the finish reason, "" if the text goes on.
        """
        if not self.request.tokens_max:
            return 0, "length"
        for kept, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            if token in self.request.sampling.stop_token_ids:
                return kept, "stop"
            if self.generated >= self.request.tokens_max:
                return kept, "length"
        return len(tokens), ""


def keep(sequence: Sequence, computed: int) -> None:
    """Take in how far a sequence is computed, and name what is full."""
    start, sequence.computed = sequence.computed, computed
    sequence.memory.commit(sequence.tokens, start, computed)


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
