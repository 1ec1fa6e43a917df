"""Rounds that are planned behind others under way, before these are answered."""

from collections.abc import Collection
from collections.abc import Sequence as Ordered

from draftwerk.speculative.options.extended_sequence import ExtendedSequence
from draftwerk.speculative.options.service.urgency import gives_way
from draftwerk.speculative.rounds import Round, Row
from draftwerk.speculative.running_set import RunningSet
from draftwerk.speculative.sequence import RoundPlan, Sequence

READ_MAX = 64
"""Most prompt tokens in a round that another is planned behind. Beside longer prompts the idle gap
is small, and a new request should not wait for two such rounds."""


def may_run_ahead(
    running_set: RunningSet, rounds: Collection[tuple[Round, Ordered[Sequence]]]
) -> bool:
    """Return whether every row of the rounds under way can be continued before they are answered.

    Their longest outcome must fit into the pool at no other sequence's cost, and no search, no more
    urgent sequence and no newcomer may have to wait long for it: else the next round is planned
    behind the verdict.
    """
    first, running = next(iter(running_set.waiting), None), running_set.running.values()
    if first is not None and any(gives_way(sequence, first) for sequence in running):
        return False
    extended = (sequence for sequence in running if isinstance(sequence, ExtendedSequence))
    if not all(sequence.runs_ahead for sequence in extended):
        return False
    if sum(read_count(row) for round_, _ in rounds for row in round_.rows) > READ_MAX:
        return False
    return all(
        sequence.memory.reserve_row(len(sequence.tokens) + undecided(sequence, row))
        for round_, members in rounds
        for sequence, row in zip(members, round_.rows, strict=True)
        if continues(sequence) and has_another_row(sequence)
    )


def read_count(row: Row) -> int:
    """Return how many tokens of a prompt a row reads; copies and probes take time as well."""
    return max(row.token_count, row.stop - row.start) - row.samples


def continues(sequence: Sequence) -> bool:
    """Return whether a round under way decides its next token, which its next row continues."""
    return sequence.in_flight > 0 and sequence.pending == 0


def has_another_row(sequence: Sequence) -> bool:
    """Return whether a sequence has another row, whatever a round under way decides."""
    if sequence.cancelled or sequence.ended:
        return False
    if isinstance(sequence, ExtendedSequence) and not sequence.is_foreseen:
        return False
    # The row under way brings a token at least: behind the last one allowed, a row is in vain.
    return sequence.pending > 0 or sequence.request.tokens_max - sequence.generated > 1


def undecided(sequence: Sequence, before: Row | None) -> int:
    """Return how many tokens at most another row decides, behind which a row of it begins."""
    return 1 + before.draft_max if before is not None and continues(sequence) else 0


class PlanBehind(RoundPlan):
    """A round that is planned behind others, whose rows its own continue.

    Of a row that continues another, the token is known by the time that it is computed.
    """

    def __init__(
        self, running_set: RunningSet, rounds: Collection[tuple[Round, Ordered[Sequence]]]
    ) -> None:
        super().__init__(running_set.pools, running_set.preempt_last, running_set.finished_ids)
        self.before = {row.sequence_id: row for round_, _ in rounds for row in round_.rows}
        """Rows under way, by sequence id."""
        self.marks = {"continues": True}

    def takes(self, sequence: Sequence) -> bool:
        return not sequence.in_flight or has_another_row(sequence)

    def may_read(self, sequence: Sequence) -> bool:
        return True

    def undecided(self, sequence: Sequence) -> int:
        return undecided(sequence, self.before.get(sequence.sequence_id))
