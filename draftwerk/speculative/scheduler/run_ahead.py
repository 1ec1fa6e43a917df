"""Whether a round is planned behind one that is computed, before that one is answered."""

from collections.abc import Collection
from collections.abc import Sequence as Ordered

from draftwerk.speculative.protocol.rounds import Round, Row
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.scheduler.running_set import RunningSet

READ_MAX = 64
"""Prompt tokens in a round that another is planned behind: beside a longer one the device's wait is
nothing, and a request that comes while it runs shall not wait for two."""


def may_run_ahead(
    running_set: RunningSet, rounds: Collection[tuple[Round, Ordered[Sequence]]]
) -> bool:
    """Return whether every row of the rounds under way can be continued before they are answered.

    Their longest outcome must fit into the pool at no other sequence's cost, and no search, no more
    urgent sequence and no newcomer may have to wait long for it: else the next round is planned
    behind the verdict.
    """
    running = running_set.running.values()
    if running_set.may_preempt or not all(sequence.runs_ahead for sequence in running):
        return False
    if sum(read_count(row) for round_, _ in rounds for row in round_.rows) > READ_MAX:
        return False
    return all(
        sequence.memory.reserve_row(sequence.known_max(row))
        for round_, members in rounds
        for sequence, row in zip(members, round_.rows, strict=True)
        if sequence.continues and sequence.goes_on
    )


def read_count(row: Row) -> int:
    """Return how many tokens of a prompt a row reads; copies and probes take time as well."""
    return max(row.token_count, row.stop - row.start) - row.samples
