"""A text: a prompt that is read in chunks, then tokens that are drafted and verified."""

from dataclasses import dataclass

from draftwerk.speculative.rounds import NOTHING_LEARNED, NewSequence, Row, VerifiedRow
from draftwerk.speculative.sequence import (
    RoundPlan,
    Sequence,
    SequenceProgress,
    Taken,
    origins,
)


@dataclass(slots=True, eq=False)
class TextSequence(Sequence):
    """A sequence with one row in each round; options extend it."""

    # --- planning -------------------------------------------------------------------------------

    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        count = min(max(1, self.unread), plan.tokens_left, count_max, plan.pools.chunk_max)
        if draft_max:
            # Half of the free blocks, in equal shares: drafts must not take what the next rows
            # need.
            free = self.memory.free_slots(plan.known_max(self), 2 * plan.row_count)
            room = self.draft_room(plan.undecided(self))
            draft_max = min(draft_max, room, free, plan.tokens_left - count)
        row = self.row(plan, self.planned, self.planned + count, draft_max) if count else None
        return [] if row is None else [row]

    def draft_room(self, undecided: int = 0) -> int:
        """Return how many drafted tokens could still be of use: the target adds one of its own.

        So many tokens are `undecided` that come before them.
        """
        left = self.request.tokens_max - self.generated - undecided
        return max(0, min(self.request.draft_max, left - 1))

    def row(self, plan: RoundPlan, start: int, stop: int, draft_max: int) -> Row | None:
        """Return a row if blocks can be had, with as many drafts as fit."""
        sent_count, end = self.sent_count, plan.reach(self, stop)
        draft_max = min(draft_max, plan.pools.draft_max)
        if not plan.reserve(self, end, draft_max):
            return None
        samples = stop >= len(self.tokens)
        memory = self.memory.begin_row(start, stop, end, draft_max if samples else 0)
        # No room for copies: the last in order gives way, and this row is tried again in the next
        # round.
        if memory is None:
            plan.preempt_last(self)
            return None
        plan.copies.extend(memory.copies)
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
            **memory.fields,
            **plan.fields(self),
        )
        # As good as arrived: a device reads its rounds in the order in which they are planned.
        self.sent_count = len(self.tokens)
        self.planned = min(stop, len(self.tokens))
        self.feedback = NOTHING_LEARNED
        return row

    def new_sequence(self) -> NewSequence:
        return NewSequence(
            tuple(self.tokens),
            self.request.prompt_count,
            self.request.sampling,
            self.request.methods,
            self.request.name_space,
            self.request.prediction,
            adapter=self.request.adapter,
        )

    # --- committing -----------------------------------------------------------------------------

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
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
        """Append decided tokens up to the end of the text.

        Returns how many were kept and the finish reason, "" if the text goes on.
        """
        # The prompt was only to be read: the target's token behind it is not wanted.
        if not self.request.tokens_max:
            return 0, "length"
        for kept, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            if token in self.request.sampling.stop_token_ids:
                return kept, "stop"
            if self.generated >= self.request.tokens_max:
                return kept, "length"
        return len(tokens), ""
