"""A round in the making: its rows, the blocks they write to, and room for their drafts."""

from draftwerk.cache.held_blocks import BlockCopy
from draftwerk.speculative.beams.root import SearchRoot
from draftwerk.speculative.blend.blend_step import BlendStep
from draftwerk.speculative.protocol.feedback import NOTHING_LEARNED
from draftwerk.speculative.protocol.rounds import Row, RowState
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.scheduler.rounds.blended_rows import next_step
from draftwerk.speculative.scheduler.running_set import RunningSet


class RoundPlan:
    """The rows that a round has so far. A row that finds no blocks is not added."""

    def __init__(self, running_set: RunningSet, tokens_max: int, before: dict[int, Row]) -> None:
        """`before` are the rows of the round under way that this one is planned behind.

        They are by sequence id; there are none where nothing is under way.
        """
        self._running_set = running_set
        self._pools = running_set.pools
        self.tokens_max = self.tokens_left = tokens_max
        self.before = before
        self.rows: list[Row] = []
        self.members: list[Sequence] = []
        """The sequence of each row."""
        self.copies: list[BlockCopy] = []
        self.moves: list[tuple[int, int]] = []

    def begin(self, sequence: Sequence, count_max: int) -> None:
        """Add the first row of a sequence, which has all of its known tokens' blocks."""
        if sequence.unread:
            self.add_chunk(sequence, count_max)
        else:
            assert isinstance(sequence, SearchRoot)
            self.add_search(sequence, 0)

    def add_chunk(self, sequence: Sequence, count_max: int) -> None:
        """Add as much of a prompt as is its share; what is reused of a segment is added whole."""
        blending, count = sequence.blending, min(sequence.unread, self.tokens_left, count_max)
        count = min(count, self._pools.chunk_max)
        if blending is not None and blending.covers(sequence.planned):
            step = next_step(self._running_set, sequence, blending, self.tokens_left)
            if step is not None:
                self.add_row(sequence, step.cost, 0, step)
            return
        if blending is not None and sequence.planned < blending.start:
            count = min(count, blending.start - sequence.planned)
        if count >= 1:
            self.add_row(sequence, count, 0)

    def add_row(
        self,
        sequence: Sequence,
        count: int,
        draft_max: int,
        step: BlendStep | None = None,
    ) -> None:
        """Add a row of `count` known tokens if blocks can be had, with as many drafts as fit.

        Of a row that continues another, the token is known by the time that it is computed.
        """
        start, stop = sequence.planned, sequence.planned + count
        if step is not None:
            start, stop = step.start, step.stop
        draft_max = min(draft_max, self._pools.draft_max)
        continues = sequence.continues
        end = sequence.known_max(self.before[sequence.sequence_id]) if continues else stop
        if not self._running_set.reserve(sequence, end, draft_max):
            return
        reading = sequence.request.reading
        samples = stop >= len(sequence.tokens) and reading is None
        memory = sequence.memory.begin_row(start, stop, end, draft_max if samples else 0)
        if memory is None:
            self._running_set.preempt(sequence)
            return
        scored = sequence.scored_span(start, stop)
        sent_count = sequence.sent_count
        row = Row(
            sequence_id=sequence.sequence_id,
            start=start,
            stop=stop,
            samples=samples,
            draft_max=memory.draft_max,
            blocks=memory.blocks,
            window_blocks=memory.window_blocks,
            new_token_ids=tuple(sequence.tokens[sent_count:]) if sent_count else (),
            new_sequence=None if sent_count else sequence.new_sequence(),
            tokens_left=sequence.request.tokens_max - sequence.generated,
            feedback=sequence.feedback,
            continues=continues,
            blend=None if step is None else step.row,
            scored=scored,
            prompt_logprobs=sequence.request.prompt_logprobs if sequence.scores else -1,
            state=None if memory.state is None else RowState(*memory.state),
            pools=reading is not None and reading.pooling is not None and scored[0] < scored[1],
            answers=reading.answers if reading is not None and scored[0] < scored[1] else (),
        )
        sequence.sent_count = len(sequence.tokens)
        if row.blend is None or not row.blend.probes:  # a probe computes nothing that lasts
            sequence.planned = min(stop, len(sequence.tokens))
        sequence.feedback = NOTHING_LEARNED
        sequence.in_flight += 1
        self.copies.extend(memory.copies)
        self.rows.append(row)
        self.members.append(sequence)
        self.tokens_left -= count + memory.draft_max

    def add_search(self, sequence: SearchRoot, draft_max: int) -> None:
        """Add the rows of all members of a beam search, or none."""
        search = sequence.search
        group = search.plan(
            sequence,
            self._pools,
            draft_max,
            self.tokens_left,
            lambda need: self._running_set.preempt_for(sequence, need),
        )
        if group is None:
            return
        sequence.in_flight += 1
        self._running_set.mark_finished(search.take_finished_ids())
        self.copies.extend(group.copies)
        self.moves.extend(group.moves)
        self.rows.extend(group.rows)
        self.members.extend(sequence for _ in group.rows)
        self.tokens_left -= sum(row.stop - row.start + row.draft_max for row in group.rows)

    def free_slots(self, sequence: Sequence, row_count: int) -> int:
        """Return how many drafts may be written behind a decoding row without cramping others.

        They may fill the row's last block, and all rows together half of the blocks that are free:
        near the pool's limit drafts grow shorter, before any sequence has to wait.
        """
        known = sequence.known_max(self.before.get(sequence.sequence_id))
        return sequence.memory.free_slots(known, 2 * row_count)
