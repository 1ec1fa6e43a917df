"""The recurrent states of one sequence, in slots of a pool beside its blocks.

A state is that of a position: what all tokens before it have come to. A row reads one slot and
writes another, never the same, so it may be computed twice:

    row r        reads A, writes B
    row r + 1    reads B, writes C        A is free once r is answered

The rows of a beam search go on from states that they share, and write each their own.

A snapshot is a state at the end of a full block, kept under the block's name. A prompt goes on from
a snapshot at exactly the end of the blocks that it finds.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.eviction.replacement import Origin
from draftwerk.cache.memory import MemoryKind, MemoryPart, SequenceMemory

START = -1
"""Read in place of a slot: the state before the first token."""


class RowState(NamedTuple):
    """The slots of a row: one is read, another written.

    What is read is the state at the row's start, what is written that at the end of the accepted
    path.
    """

    source: int
    """-1 before the first token."""
    target: int
    saves: tuple[tuple[int, int], ...] = ()
    """(position, slot): snapshots, written as well where the row passes the position."""


@dataclass(frozen=True, slots=True)
class StateSlots:
    """How many slots a model's memory has, and how often snapshots are worth theirs."""

    count: int = 0
    interval: int = 0
    """Tokens between snapshots of a prompt, in whole blocks."""

    def kind(self, block_count: int, block_size: int, rows: int) -> "StateRules | None":
        """Return the kind of memory that they are, for so many rows under way; None without any."""
        if not self.count:
            return None
        return StateRules(BlockPool(self.count, 1), 1 + rows, block_size, self.interval)


NO_STATES = StateSlots()
INTERVAL_COST = 4
"""Keys and values between two snapshots of a prompt take so many times the memory of one. A prompt
that parts from another between two of them reads again what is behind the first."""


def snapshot_interval(state_bytes: int, block_bytes: int, block_size: int) -> int:
    """Return how many tokens of a prompt are between two snapshots, in whole blocks."""
    return INTERVAL_COST * max(1, state_bytes // block_bytes) * block_size


@dataclass(frozen=True, slots=True)
class StateRules(MemoryKind):
    """The rules common to the states of all sequences."""

    pool: BlockPool
    """The pool of slots."""
    own: int
    """Slots of each sequence that runs: one more than rows under way."""
    block_size: int
    interval: int
    """Tokens of a prompt between snapshots, in whole blocks."""
    passing: set[bytes] = field(default_factory=set[bytes])
    """Snapshots of replies that go on: each takes the place of the one before."""

    def part(
        self, name_space: str, prompt_count: int, is_salted: bool, slots_min: int
    ) -> "SequenceStates":
        """Return the empty states of a sequence."""
        return SequenceStates(self, name_space, slots_min, prompt_count)

    def sizes(self, tokens_max: int) -> dict[str, Any]:
        return {"states": self.pool.capacity}


@dataclass(slots=True)
class SequenceStates(MemoryPart):
    """Slots that a running sequence holds, and the snapshots that it makes."""

    rules: StateRules
    name_space: str = ""
    count: int = 0
    """Slots of its own, if it needs more than one that runs alone."""
    prompt_count: int = 0
    """Tokens of the prompt."""
    parting: int = 0
    """Where the prompt leaves the blocks that were found, if no snapshot was there."""
    _own: list[int] = field(default_factory=list[int])
    _free: deque[int] = field(default_factory=deque[int])
    """Its own slots that no row under way reads or writes."""
    _entry: int = START
    """The snapshot that it began from, until its first row is answered."""
    _latest: int = START
    _rows: deque[RowState] = field(default_factory=deque[RowState])
    """Under way."""
    _branches: frozenset[int] = frozenset()
    """The slots that the branches of a beam search go on from."""
    _of_reply: frozenset[bytes] = frozenset()
    """The snapshots of its reply, of a beam search those of its texts."""

    @property
    def kind(self) -> StateRules:
        return self.rules

    def entry_count(self, tokens: int) -> int:
        return self.slots

    def known(self, names: Sequence[bytes]) -> int:
        """Return how many of the named blocks of a prompt lie before their last snapshot."""
        counts = range(len(names), 0, -1)
        return next((n for n in counts if self.rules.pool.find(names[n - 1]) is not None), 0)

    def enter(self, names: Sequence[bytes]) -> int | None:
        """Take slots, and the last snapshot among the named blocks of a prompt.

        Returns how many of those blocks can be used; None, and nothing is taken, if there is no
        room.
        """
        assert not self._own, "a sequence enters once"
        pool, count = self.rules.pool, self.known(names)
        if count:
            self._entry = pool.reuse(names[count - 1])
        slots = pool.take(self.slots)
        if slots is None:
            self._drop_entry()
            return None
        self._own, self._free = slots, deque(slots)
        self._latest = self._entry
        self.parting = len(names) * self.rules.block_size if count < len(names) else 0
        return count

    @property
    def slots(self) -> int:
        """How many slots of its own it has while it runs."""
        return max(self.count, self.rules.own)

    @property
    def latest(self) -> int:
        """The slot that its next row reads."""
        return self._latest

    def go_on(self, source: int, saves: tuple[tuple[int, int], ...] = ()) -> RowState:
        """Return what a row does that goes on from a slot: its own last one's, or a branch's."""
        use = RowState(source, self._free.popleft(), saves)
        self._rows.append(use)
        return use

    def end_branches(self, sources: Iterable[int]) -> None:
        """Take in that the rows of all branches are answered: these slots are read next."""
        self._branches = frozenset(sources)
        self._rows.clear()
        self._free = deque(slot for slot in self._own if slot not in self._branches)
        if self._entry not in self._branches:
            self._drop_entry()

    def begin_row(self, start: int, stop: int, reach: int) -> dict[str, Any]:
        return {"state": self.row_state(start, stop, reach)}

    def row_state(self, start: int, stop: int, reach: int) -> RowState:
        """Return what a row does that computes start .. stop, and a path as far as `reach`."""
        saves, pool = list[tuple[int, int]](), self.rules.pool
        for position in self._boundaries(start, stop, reach):
            # What only drafts would come to leaves room for a sequence to enter, from a snapshot.
            if pool.available > (self.rules.own + 1 if position > stop else 0):
                saves.extend((position, slot) for slot in pool.take(1) or ())
        use = self.go_on(self._latest, tuple(saves))
        self._latest = use.target
        return use

    def _boundaries(self, start: int, stop: int, reach: int) -> Iterator[int]:
        """Yield where snapshots are to be made: at the end of the prompt, where it parts from
        others, every so often within it, and at the last block of the reply."""
        size, every = self.rules.block_size, self.rules.interval
        last = (self.prompt_count - 1) // size * size
        wanted = {last, self.parting, *range((start // every + 1) * every, last, every)}
        yield from sorted(each for each in wanted if start < each <= stop)
        following = (max(start, stop - 1) // size + 1) * size
        if last < following <= reach and following not in wanted:
            yield following

    def commit(self, memory: SequenceMemory, named: int, start: int, computed: int) -> None:
        self.end_row(start, computed, memory.names)

    def end_row(self, start: int, end: int, names: Sequence[bytes]) -> None:
        """Take in that the oldest row is answered: it has come from `start` to `end`."""
        use, size = self._rows.popleft(), self.rules.block_size
        for position, slot in use.saves:
            if start < position <= end:
                name = names[position // size - 1]
                self.name(slot, name, position)
                if position > self.prompt_count - 1:
                    self.keep((name,))
            self.rules.pool.drop([slot])
        if use.source in self._own:
            self._free.append(use.source)
        else:
            self._drop_entry()

    def name(self, slot: int, name: bytes, position: int) -> None:
        """Make a snapshot findable, by the name of the block that it is behind."""
        depth = position // self.rules.block_size - 1
        self.rules.pool.name(slot, name, Origin(depth, self.name_space))

    def keep(self, names: Iterable[bytes]) -> None:
        """Have no other snapshots of the reply than these."""
        pool, kept = self.rules.pool, frozenset(names)
        for old in sorted(self._of_reply - kept):
            slot = pool.find(old)
            if slot is not None and not pool.holders(slot):
                pool.hold(slot)
                pool.unname([slot])
                pool.drop([slot])
        self.rules.passing.difference_update(self._of_reply)
        self.rules.passing.update(kept)
        self._of_reply = kept

    def forget_named(self, names: Sequence[bytes]) -> None:
        """Remove snapshots from those that are found: they must not be served again."""
        pool = self.rules.pool
        wanted = {*names, *self._of_reply}
        for slot in [slot for name in sorted(wanted) if (slot := pool.find(name)) is not None]:
            pool.hold(slot)
            pool.forget([slot])
            pool.drop([slot])

    def leave(self) -> None:
        """Give back every slot; snapshots stay."""
        for use in self._rows:
            self.rules.pool.drop(slot for _, slot in use.saves)
        self._drop_entry()
        self._settle()
        self.rules.pool.drop(self._own)
        self._own, self._latest, self._of_reply = [], START, frozenset()
        self._branches = frozenset()
        self._free.clear()
        self._rows.clear()

    def _drop_entry(self) -> None:
        if self._entry != START:
            self.rules.pool.drop([self._entry])
        self._entry = START

    def _settle(self) -> None:
        """Let the snapshots of the reply be like others: tier two is told of them again."""
        self.rules.passing.difference_update(self._of_reply)
        for name in sorted(self._of_reply):
            if (slot := self.rules.pool.find(name)) is not None:
                self.rules.pool.hold(slot)
                self.rules.pool.drop([slot])

    def holds(self) -> Iterator[int]:
        """Yield every slot that it holds."""
        yield from self._own
        yield from (slot for use in self._rows for _, slot in use.saves)
        if self._entry != START:
            yield self._entry

    def check(self) -> None:
        """Assert that no slot is read and written at once, and none is lost."""
        used = {slot for use in self._rows for slot in (use.source, use.target)} | self._branches
        free, targets = set(self._free), {use.target for use in self._rows}
        assert not free & used, "a slot is free and used"
        assert not targets & self._branches, "a state is written where another branch reads it"
        assert all(use.source != use.target for use in self._rows), "a state is written in place"
        assert set(self._own) <= free | used | {self._latest}, "a slot is lost"
