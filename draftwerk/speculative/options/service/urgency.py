"""Less urgent texts that run: the first that waits is served at their cost, if it has room then."""

from draftwerk.speculative.options.service.lengths import held_blocks
from draftwerk.speculative.running_set import RunningSet
from draftwerk.speculative.sequence import Sequence


def gives_way(running: Sequence, first: Sequence) -> bool:
    """Return whether a running sequence is preempted for the first that waits."""
    is_urgent = running.request.priority > first.request.priority
    return is_urgent and running.queue_key > first.queue_key


def preempt_for_first(running_set: RunningSet, rows_max: int) -> None:
    """Admit the first that waits at the cost of less urgent sequences, if it can then."""
    first, pool = running_set.waiting.first_ready, running_set.pool
    if first is None:
        return
    victims = [sequence for sequence in running_set.preemptible() if gives_way(sequence, first)]
    need = first.entry_blocks(pool)
    # An upper bound: a block that several share does not become free with each of them.
    if not victims or pool.available + sum(map(held_blocks, victims)) < need:
        return
    # One at a time, as long as that is needed: what is preempted is computed again.
    for victim in victims:
        has_room = running_set.pools.has_for(first.memory, need, len(first.tokens))
        if has_room and len(running_set.running) < rows_max:
            break
        running_set.preempt(victim)
    # At once, before rows that are already running take the blocks for their drafts.
    if len(running_set.running) < rows_max and running_set.admit(first):
        running_set.waiting.remove(first)
