"""Prompts that another model process computes, over the same pages (prefill apart from decode).

    waiting --enter--> apart --chunk, chunk, ...--> all but its last token computed --> decoded

A sequence that is apart has no row in the rounds of those that decode, and they stay small. Nothing
is sent when it comes to them: its block table is the hand-over, and its first row there computes
the last token of its prompt, from whose logits its text begins. So nothing that decides a text
leaves the process that decodes. The other process keeps nothing from one chunk to the next.
"""

from collections.abc import Callable, Set

from draftwerk.speculative.protocol.rounds import (
    UNSAMPLED,
    NewSequence,
    Round,
    Row,
    RowState,
    Verdict,
)
from draftwerk.speculative.protocol.step_report import NO_STEP
from draftwerk.speculative.requests.sequence import Sequence, keep
from draftwerk.speculative.requests.sequence_progress import SequenceProgress
from draftwerk.speculative.scheduler.running_set import RunningSet


class PrefillLane:
    """Which prompts are computed apart, and their rounds; one process has one round at a time."""

    def __init__(self, running_set: RunningSet, tokens_max: int, inline_max: int) -> None:
        """`tokens_max` is of a chunk; `inline_max` is what is not worth a hand-over."""
        self.running_set = running_set
        self.tokens_max = tokens_max
        self.inline_max = inline_max
        self.up: set[int] = set()
        """The processes that are there; with none, prompts are read in rounds of decoding rows."""
        self.report = NO_STEP
        """Of the latest step of any process."""
        self._rounds: dict[int, tuple[Round, list[Sequence]]] = {}  # in flight, by process
        self._long: set[int] = set()  # sequences that were seen to wait for room here
        self._count = 0

    @property
    def members(self) -> list[Sequence]:
        """The sequences in it, those first whose turn is first."""
        apart = [one for one in self.running_set.running.values() if one.disaggregated]
        return sorted(apart, key=lambda one: one.queue_key)

    @property
    def has_all(self) -> bool:
        """Whether nothing is left to those that decode."""
        return bool(self.up) and all(one.disaggregated for one in self.running_set.running.values())

    def waits(self, sequence: Sequence) -> bool:
        """Return whether a waiting sequence is to wait until there is room here.

        There is none while there is enough to do first: what enters later finds more in the prefix
        cache.
        """
        first = [one.pending - 1 for one in self.members if one.queue_key <= sequence.queue_key]
        if sum(first) < self.tokens_max * len(self.up) or not self.up:
            self._long.clear()
            return False
        if sequence.stays:
            return False
        if sequence.sequence_id in self._long:
            return True
        tokens = sequence.tokens
        if len(tokens) - sequence.table.known_slots(tokens, sequence.names) <= self.inline_max:
            return False
        self._long.add(sequence.sequence_id)
        return True

    def leaves(self, sequence: Sequence, inline_left: int) -> bool:
        """Return whether the next round reads the prompt of a sequence that runs.

        If not, it is apart from now on. A short prompt does not line up behind long ones, which
        take seconds: it stays, and a later round has room for it.
        """
        # Segments are read in steps of their own shape, and log-probabilities need logits: decoding
        # rounds carry both.
        is_free = bool(self.up) and not sequence.in_flight and not sequence.stays
        sequence.disaggregated = False
        if not is_free or sequence.pending <= max(1, inline_left):
            return True
        sequence.disaggregated = self._is_long(sequence) or not any(
            map(self._is_long, self.members)
        )
        return False

    def plan(self, written: Callable[[], Set[int]] = frozenset[int]) -> Round | None:
        """Return the next chunks for a process that has none, or None.

        `written` are the blocks of the decoding rounds under way. One of them may belong to a text
        that has ended meanwhile: the block's next sequence waits until that round is answered.
        """
        process = min(self.up - self._rounds.keys(), default=None)
        ready = [one for one in self.members if not one.in_flight]
        if process is None or not ready:
            return None
        others = written()
        ready = [one for one in ready if others.isdisjoint(self._own_blocks(one))]
        if not ready:
            return None
        left, rows, members = self.tokens_max, list[Row](), list[Sequence]()
        for sequence in ready:
            count = min(sequence.pending - 1, left)
            if count == 0:
                break
            rows.append(self._row(sequence, count))
            members.append(sequence)
            left -= count
        self._count += 1
        round_ = Round(round_id=self._count, pipeline_slot=process, rows=tuple(rows))
        self._rounds[process] = round_, members
        return round_

    def commit(self, verdict: Verdict) -> list[SequenceProgress]:
        """Apply a verdict; returns the progress of every sequence that failed."""
        round_, members = self._rounds.pop(verdict.pipeline_slot)
        assert round_.round_id == verdict.round_id, "a verdict for another round"
        self.report = verdict.report
        updates: list[SequenceProgress] = []
        for sequence, row, decision in zip(members, round_.rows, verdict.decisions, strict=True):
            sequence.in_flight -= 1
            if sequence.cancelled:
                self.running_set.end(sequence)
            elif decision.error:
                sequence.forget()
                self.running_set.end(sequence)
                updates.append(SequenceProgress(sequence, (), (), (), "error", decision.error))
            else:
                keep(sequence, row.stop)
                self.running_set.stats.prefilled_apart += row.stop - row.start
                sequence.disaggregated = sequence.pending > 1
        return updates

    def note(self, process: int, *, up: bool) -> None:
        """Note that a process can work, or that it is away and writes to no page any more."""
        if up:
            self.up.add(process)
            return
        self.up.discard(process)
        if process in self._rounds:
            _, members = self._rounds.pop(process)
            for sequence in members:
                sequence.in_flight -= 1
                sequence.planned = sequence.computed
                if sequence.states is not None:
                    sequence.states.cancel_row()
                if sequence.cancelled:
                    self.running_set.end(sequence)
        if not self.up:
            for sequence in self.members:
                sequence.disaggregated = False

    def blocks_in_flight(self) -> set[int]:
        """Return every block that a process may be writing to."""
        rounds = [round_ for round_, _ in self._rounds.values()]
        return {block for round_ in rounds for row in round_.rows for block in row.blocks}

    def in_flight(self) -> list[Sequence]:
        """Return the sequences of all rounds under way."""
        return [one for _, members in self._rounds.values() for one in members]

    def check(self) -> None:
        """Assert that a sequence that is apart has something to compute, and a process to do it."""
        for sequence in self.members:
            assert sequence.in_flight or sequence.pending > 1, (
                "a sequence is apart with nothing to compute there"
            )
            assert self.up or sequence.in_flight, "a sequence is apart with nobody there"
        for sequence in self.in_flight():
            assert sequence.disaggregated and sequence.in_flight, "a chunk is computed of nobody"

    def _is_long(self, sequence: Sequence) -> bool:
        return sequence.pending > self.inline_max

    def _own_blocks(self, sequence: Sequence) -> list[int]:
        """Return the blocks that its chunks write to."""
        return sequence.table.blocks[sequence.computed // self.running_set.pool.block_size :]

    def _row(self, sequence: Sequence, count: int) -> Row:
        start, stop = sequence.planned, sequence.planned + count
        copies = sequence.table.own(start)
        assert not copies, "a prompt's own blocks are nobody else's"
        sequence.in_flight += 1
        sequence.planned = stop
        states, prompt_count = sequence.states, sequence.request.prompt_count
        return Row(
            sequence_id=sequence.sequence_id,
            start=start,
            stop=stop,
            samples=False,
            draft_max=0,
            **sequence.table.row_blocks(stop),
            state=None
            if states is None
            else RowState(*states.begin_row(start, stop, stop, prompt_count)),
            # Whole each time: what the process does not keep, it cannot lose.
            new_sequence=NewSequence(
                tuple(sequence.tokens[: stop + 1]),
                stop + 1,
                UNSAMPLED,
                adapter=sequence.request.adapter,
            ),
        )
