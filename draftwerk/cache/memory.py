"""The memory of a sequence: its blocks, those of layers with windows, and recurrent states.

    enter, reserve ── begin_row ── commit ── begin_row ── commit ── leave
       what is cached is found;       what is committed is named; leaving gives all back
       the rest has room              and found by others from now on

`CachePools` is what all sequences take from. A model has blocks, and the other two if its layers
ask for them; who schedules sees none of that here but how much is available.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from typing import NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.held_blocks import BlockCopy, BlockList
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.recurrent_states import SequenceStates, StateRules, StateUse
from draftwerk.cache.tables import Blended, BlockTable
from draftwerk.cache.window_table import WindowGroup, WindowTable


class RowMemory(NamedTuple):
    """Blocks and slots that a row reads and writes."""

    copies: list[BlockCopy]
    """Made before anything is written."""
    draft_max: int
    """Drafted tokens that find room."""
    blocks: tuple[int, ...]
    window_blocks: tuple[int, ...]
    state: StateUse | None


@dataclass(slots=True)
class SequenceMemory:
    """The memory of one sequence, or of a branch of one."""

    table: BlockTable
    window: WindowTable | None = None
    """Blocks of layers with windows, where those have a pool of their own."""
    states: SequenceStates | None = None
    """The states of a model with recurrent layers."""
    prompt_count: int = 0
    """Tokens of the prompt, for the snapshots of states."""
    names: list[bytes] = field(default_factory=list[bytes])
    """Names of its first blocks, as far as they were looked for: one that waits is named once."""

    @property
    def block_size(self) -> int:
        """Slots of a block."""
        return self.table.block_size

    @property
    def block_count(self) -> int:
        """Blocks that it holds, those of windows apart."""
        return len(self.table.blocks)

    @property
    def slots(self) -> int:
        """Tokens that there are blocks for now."""
        return self.table.slots

    def parts(self) -> Iterator[BlockList]:
        """Yield its blocks in each pool."""
        yield self.table
        if self.window is not None:
            yield self.window

    # --- entering -----------------------------------------------------------------------------

    def known(self, tokens: Sequence[int]) -> int:
        """Return how many tokens `enter` would find computed, about, and take nothing."""
        names = self.table.known(tokens, self.names)
        count = self._goes_on_behind(names)
        if self.states is not None:
            count = self.states.known(names[:count])
        return count * self.block_size

    def name(self, tokens: Sequence[int], index: int) -> bytes:
        """Return the name of a block of a text, which tells all that is before its end."""
        return self.table.named(tokens, index + 1, self.names)[index]

    def enter(self, tokens: Sequence[int]) -> int | None:
        """Hold what is cached of a text, and what it needs besides blocks; returns how many tokens
        are found, or None if there is no room. What it then holds is given back by `leave`."""
        found = self.table.match(tokens, self.names, self._goes_on_behind)
        if self.window is not None:
            self.window.enter(self.table.names)
        if self.states is None:
            return found
        count = self.states.enter(self.table.names)
        if count is None:
            return None
        self.truncate(count * self.block_size)
        return self.slots

    def _goes_on_behind(self, names: Sequence[bytes]) -> int:
        """Return behind how many of the cached blocks a text can go on."""
        return len(names) if self.window is None else self.window.group.longest_hit(names)

    def reserve(self, slots: int) -> bool:
        """Take blocks for a whole text, or change nothing and return False.

        Those of windows are taken row by row.
        """
        return self.table.grow(slots)

    def later_blocks(self, tokens: int) -> int:
        """Return how many blocks it still takes row by row, of a text of so many tokens."""
        return 0 if self.window is None else self.window.room(tokens)

    # --- rows ---------------------------------------------------------------------------------

    def reserve_row(self, slots: int) -> bool:
        """Take every block that a row of so many slots needs; False if not all can be had."""
        return self.table.grow(slots) and (self.window is None or self.window.grow(slots))

    def free_slots(self, known: int, shares: int) -> int:
        """Return how many slots there are behind those `known`, with a share of what is free."""
        return min(part.free_slots(known, shares) for part in self.parts())

    def make_writable(self, start: int) -> list[BlockCopy] | None:
        """Copy on write: replace shared blocks from the slot `start` on by copies.

        Returns the copies to make, or None (and changes nothing) if a pool is too empty.
        """
        if self.window is None:
            return self.table.make_writable(start)
        if not self.table.has_copies(start):
            return None
        further = self.window.make_writable(start)
        return None if further is None else [*(self.table.make_writable(start) or ()), *further]

    def row_blocks(self, slots: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the blocks of a row that reaches to so many slots, and those of its windows."""
        window = () if self.window is None else self.window.first_blocks(slots)
        return self.table.first_blocks(slots), window

    def begin_row(self, start: int, stop: int, end: int, draft_max: int) -> RowMemory | None:
        """Return what a row uses that computes start .. stop; None if there is no room for copies.

        Drafts may be written behind `end`, as far as blocks were reserved.
        """
        copies = self.make_writable(start)
        if copies is None:
            return None
        draft_max = min(draft_max, min(part.slots for part in self.parts()) - end)
        reach, state = end + draft_max, None
        if self.states is not None:
            state = self.states.begin_row(start, stop, reach, self.prompt_count)
        return RowMemory(copies, draft_max, *self.row_blocks(reach), state)

    def commit(self, tokens: Sequence[int], start: int, computed: int) -> None:
        """Take in that the oldest row is answered, which has come from `start` to `computed`: full
        blocks are named, and what no later row reads goes home."""
        named = len(self.table.names)
        self.table.commit(tokens, computed)
        if self.window is not None:
            self.window.commit(self.table.names, named, self.table.name_space, computed)
        if self.states is not None:
            self.states.end_row(start, computed, self.table.names, self.prompt_count)

    # --- branching and leaving ----------------------------------------------------------------

    def fork(self) -> "SequenceMemory":
        """Return a second one over the same blocks, copy-on-write; states stay with the first."""
        window = None if self.window is None else self.window.fork()
        return SequenceMemory(self.table.fork(), window)

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        self.table.truncate(slots)
        if self.window is not None:
            self.window.truncate(slots)

    def leave(self) -> None:
        """Give everything back; what has a name stays cached."""
        self.truncate(0)
        if self.states is not None:
            self.states.leave()

    def forget(self) -> None:
        """Have nothing served again of what was computed for it."""
        if self.states is not None:
            self.states.forget(self.table.names)
        for part in self.parts():
            part.forget()

    def held(self) -> Iterator[tuple[int, int]]:
        """Yield (pool, block) for all that it holds, as `CachePools.all` numbers the pools."""
        for number, part in enumerate(self.parts()):
            yield from ((number, block) for block in part.held())
        if self.states is not None:
            yield from ((STATES, slot) for slot in self.states.held())

    def check(self) -> None:
        """Assert that it holds what it names."""
        for part in self.parts():
            part.check()
        if self.states is not None:
            self.states.check()


BLOCKS, WINDOWS, STATES = range(3)


@dataclass(frozen=True, slots=True)
class CachePools:
    """The pools that all sequences take from."""

    blocks: BlockPool
    windows: WindowGroup | None = None
    """For a model whose layers with windows have blocks of their own."""
    states: StateRules | None = None
    """For a model with recurrent layers."""

    def memory(
        self,
        namer: BlockNamer,
        name_space: str,
        prompt_count: int = 0,
        blended: Blended | None = None,
        state_slots: int = 0,
    ) -> SequenceMemory:
        """Return the empty memory of a sequence; blended text has blocks alone for all layers.

        `state_slots` are those of a search, which needs more than a text.
        """
        group, rules = self.windows, self.states
        return SequenceMemory(
            BlockTable(self.blocks, namer, name_space, blended),
            None if group is None or blended is not None else WindowTable(group),
            None if rules is None else SequenceStates(rules, name_space, state_slots),
            prompt_count,
        )

    def all(self) -> tuple[BlockPool | None, ...]:
        """Return the pools by their numbers."""
        group, rules = self.windows, self.states
        return self.blocks, group and group.pool, rules and rules.pool

    def available(self) -> tuple[int, ...]:
        """Return how much could be had now of each pool."""
        return tuple(0 if pool is None else pool.available for pool in self.all())

    @property
    def chunk_max(self) -> int:
        """Known tokens that a row computes at most."""
        return maxsize if self.windows is None else self.windows.chunk_max

    @property
    def draft_max(self) -> int:
        """Drafted tokens in a row at most."""
        return maxsize if self.windows is None else self.windows.draft_max

    def has(self, counts: Iterable[int]) -> bool:
        """Return whether so much is available of each pool."""
        return all(
            pool is None or pool.available >= count
            for pool, count in zip(self.all(), counts, strict=False)
        )

    def has_for(self, memory: SequenceMemory, blocks: int, tokens: int) -> bool:
        """Return whether a text of so many tokens, which takes so many blocks, could enter."""
        windows = 0 if self.windows is None else self.windows.blocks_of(tokens)
        return self.has((blocks, windows, 0 if memory.states is None else memory.states.slots))

    def has_later(self, memories: Iterable[tuple[SequenceMemory, int]]) -> bool:
        """Return whether all of these texts, of so many tokens, find the blocks that they take row
        by row."""
        if self.windows is None:
            return True
        wanted = sum(memory.later_blocks(tokens) for memory, tokens in memories)
        return wanted <= self.windows.pool.available

    def check(self, memories: Iterable[SequenceMemory]) -> None:
        """Assert that each block and slot is held by exactly the memories that name it."""
        holders = Counter[tuple[int, int]]()
        for memory in memories:
            memory.check()
            holders.update(memory.held())
        for number, pool in enumerate(self.all()):
            if pool is not None:
                pool.check()
                leaked = [n for n in pool.ids if pool.holders(n) != holders[number, n]]
                assert not leaked, "a block leaked"
