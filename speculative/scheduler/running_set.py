"""Which sequences hold blocks, which wait for some, and which are preempted.

waiting --enter--> running --end-->
   ^                  |
   +---- preempt -----+      (its blocks go home; the prefix index makes coming back cheap)
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.drafting.token_weights import Occupancy
from draftwerk.speculative.scheduler.stats import SchedulerStats
from draftwerk.speculative.sequence import Sequence


class ComputedCount(NamedTuple):
    """How much was computed of a request; what is greater is farther."""

    tokens: int
    """Of all its choices; a beam search has its prompt alone here."""
    search_steps: int = 0
    """How long the longest hypothesis of its beam search is."""


class RunningSet:
    """Every live sequence: running ones in order of admission, waiting ones in queue order."""

    def __init__(self, pool: BlockPool, stats: SchedulerStats) -> None:
        self.pool = pool
        self.stats = stats
        self.waiting: deque[Sequence] = deque()
        self.running: OrderedDict[int, Sequence] = OrderedDict()
        self._finished_ids: list[int] = []
        self._occupancy = Occupancy()

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence behind those of its priority."""
        index = len(self.waiting)
        while index and self.waiting[index - 1].priority > sequence.priority:
            index -= 1
        self.waiting.insert(index, sequence)

    def enter(self, sequence: Sequence) -> bool:
        """Run a sequence: find its prefix, take blocks for the rest; or leave it as it was."""
        found = sequence.table.match(sequence.tokens)
        if not sequence.table.reserve(len(sequence.tokens)) or self._is_cramped(sequence):
            sequence.table.release()
            return False
        sequence.computed = found
        sequence.sent_count = 0
        self.stats.prefix_queries += len(sequence.tokens)
        self.stats.prefix_hits += found
        if sequence.resumed or sequence.tally.preemptions:
            self.stats.recomputed_tokens += len(sequence.tokens) - found
        if sequence.tally.cached is None:
            sequence.tally.cached = min(found, sequence.prompt_count)
            self.stats.prompt_tokens += 0 if sequence.resumed else sequence.prompt_count
        self.running[sequence.sequence_id] = sequence
        self._occupancy.started()
        return True

    def free(self, sequence: Sequence, count: int) -> bool:
        """Make blocks available, at the cost of the youngest; False if that was the sequence."""
        while self.pool.available < count:
            if not self._give_way(sequence):
                return False
        return True

    def make_room(self, sequence: Sequence, stop: int, draft_max: int) -> bool:
        """Reserve a row's slots; drafts are given up first, then the youngest's blocks."""
        if sequence.table.reserve(stop + draft_max):
            return True
        while not sequence.table.reserve(stop):
            if not self._give_way(sequence):
                return False
        return True

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the queue's head; its text is kept, its KV is not."""
        self.stats.preemptions += 1
        sequence.tally.preemptions += 1
        self._leave(sequence)
        sequence.computed = 0
        self.waiting.appendleft(sequence)

    def end(self, sequence: Sequence) -> None:
        """Remove a sequence, running or waiting."""
        sequence.ended = True
        if sequence.sequence_id in self.running:
            self._leave(sequence)
            self._occupancy.ended(len(self.running))
        else:
            self.waiting.remove(sequence)

    def mark_finished(self, sequence_ids: Iterable[int]) -> None:
        """Have the devices forget sequences with the next round."""
        self._finished_ids.extend(sequence_ids)

    def take_finished_ids(self) -> tuple[int, ...]:
        """Return the sequences that the devices can forget."""
        finished_ids, self._finished_ids = tuple(self._finished_ids), []
        return finished_ids

    def occupancy(self) -> float:
        """Return how likely another sequence takes the place of one that ends."""
        return self._occupancy.share(len(self.waiting))

    def computed_counts(self) -> dict[str, ComputedCount]:
        """Return how much was computed of each request that runs."""
        found: dict[str, ComputedCount] = {}
        for sequence in self.running.values():
            tokens, steps = found.get(sequence.request_id, ComputedCount(0))
            if sequence.search is not None:
                steps += sequence.search.beams.length_max
            found[sequence.request_id] = ComputedCount(tokens + sequence.computed, steps)
        return found

    def check(self) -> None:
        """Assert every invariant: each block's holders are the tables that name it."""
        self.pool.check()
        holders = [0] * self.pool.capacity
        for sequence in self.running.values():
            assert sequence.computed <= len(sequence.tokens), "more KV than tokens"
            if sequence.search is None or not sequence.search.members:
                assert sequence.computed <= sequence.table.slots, "KV outside the table"
            for table in _tables(sequence):
                table.check()
                for block in table.blocks:
                    holders[block] += 1
            if sequence.search is not None:
                sequence.search.check()
        assert not any(table.blocks for s in self.waiting for table in _tables(s)), (
            "a waiting sequence holds blocks"
        )
        assert all(self.pool.holders(b) == n for b, n in enumerate(holders)), "a block leaked"

    def _is_cramped(self, sequence: Sequence) -> bool:
        """Return whether a search would be preempted as soon as its members branch off."""
        if sequence.search is None or not self.running:
            return False
        return self.pool.available < sequence.search.tail_blocks(sequence, self.pool)

    def _give_way(self, asking: Sequence) -> bool:
        """Preempt the last admitted that is in no round; False if there is none, or it asked."""
        victim = next((s for s in reversed(self.running.values()) if not s.in_flight), None)
        if victim is not None:
            self.preempt(victim)
        return victim is not None and victim is not asking

    def _leave(self, sequence: Sequence) -> None:
        del self.running[sequence.sequence_id]
        sequence.table.release()
        if sequence.search is not None:
            self._finished_ids.extend(sequence.search.leave(sequence))
        if sequence.sent_count:
            self._finished_ids.append(sequence.sequence_id)
            sequence.sent_count = 0


def _tables(sequence: Sequence) -> list[BlockTable]:
    """Return every table that belongs to a sequence."""
    return [sequence.table, *(sequence.search.tables() if sequence.search else ())]
