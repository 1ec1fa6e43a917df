"""The blocks of layers with an attention window, where they have a pool of their own.

    the table         | 0 | 1 | 2 | 3 | 4 | 5 | 6 |     every block of the text
    its window table  | - | - | - | - | w | w | w |     what a row behind the computed tokens reads

A layer with a window of w lets the token at p see p - w + 1 .. p. What lies before all that a later
row can see is given back: to the pool's cache, under its name, and evicted there when room is
needed. A text goes on from a prefix where the blocks of its window are found as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.eviction.replacement import Origin
from draftwerk.cache.memory import MemoryKind, MemoryPart, SequenceMemory
from draftwerk.cache.tables import RELEASED, BlockTable


@dataclass(frozen=True, slots=True)
class WindowBlocks:
    """How many blocks a model's memory has for its layers with windows."""

    count: int = 0
    window: int = 0
    """The longest of its layers'."""
    row_max: int = 0
    """Slots that one row writes at most."""
    kept: int = 0
    """Blocks at a text's beginning that all rows read."""

    def first_read(self, start: int, block_size: int) -> int:
        """Return the number of the first block behind those that a row reads from `start` on."""
        return max(self.kept, (start - self.window + 1) // block_size)

    def kind(self, block_count: int, block_size: int, rows: int) -> "WindowGroup | None":
        """Return the kind of memory that they are, behind other blocks; None without any."""
        if not self.count:
            return None
        pool = BlockPool(self.count, block_size, first=block_count)
        return WindowGroup(pool, self.window, self.row_max, self.kept)


NO_WINDOW_BLOCKS = WindowBlocks()


@dataclass(frozen=True, slots=True)
class WindowGroup(MemoryKind):
    """The parts common to the window tables of all sequences."""

    pool: BlockPool
    """Its ids begin where those of the other layers' blocks end."""
    window: int
    """Positions that a token sees at most, itself included."""
    row_max: int
    """Slots that one row writes at most."""
    kept: int = 0
    """Blocks at a text's beginning that all rows read."""

    @property
    def chunk_max(self) -> int:
        """Known tokens that a row computes at most."""
        return self.row_max // 2

    @property
    def draft_max(self) -> int:
        """Drafted tokens in a row at most: another may continue it before it is answered."""
        return max(0, self.row_max // 4 - 1)

    def part(
        self, name_space: str, prompt_count: int, is_salted: bool, slots_min: int
    ) -> "WindowTable | None":
        """Return the empty table of a sequence; blended text has blocks alone for all layers."""
        return None if is_salted else WindowTable(self)

    def sizes(self, tokens_max: int) -> dict[str, Any]:
        return {"windows": (self.pool.capacity, self.blocks_of(tokens_max))}

    def first_read(self, start: int) -> int:
        """Return the number of the first block that a row reads which begins at `start`."""
        return max(0, start - self.window + 1) // self.pool.block_size

    def blocks_of(self, tokens: int) -> int:
        """Return how many blocks a text of so many tokens holds at once, at most."""
        size = self.pool.block_size
        held = -(-(self.window + self.row_max) // size) + 1 + self.kept
        return min(-(-tokens // size), held)

    def longest_hit(self, names: Sequence[bytes]) -> int:
        """Return behind how many of a text's first blocks it can go on: the most for which the
        blocks are found that its next row reads."""
        hit = run = 0
        for count, name in enumerate(names, 1):
            run = run + 1 if self.pool.find(name) is not None else 0
            if count <= self.kept and run < count:
                break
            if run >= count - max(self.first_read(count * self.pool.block_size), self.kept):
                hit = count
        return hit


class WindowTable(BlockTable, MemoryPart):
    """A sequence's blocks in the window group; the numbers are those of its block table."""

    row_field: ClassVar = "window_blocks"

    def __init__(self, group: WindowGroup) -> None:
        super().__init__(group.pool)
        self.group = group
        self._first = group.kept
        """The first block that is held behind those kept."""

    @property
    def kind(self) -> WindowGroup:
        return self.group

    def usable(self, names: Sequence[bytes]) -> int:
        return self.group.longest_hit(names)

    def enter(self, names: Sequence[bytes]) -> int:
        """Begin behind named blocks, of which those in the window are in the pool."""
        self._first = self._first_held(len(names) * self.block_size)
        for index, name in enumerate(names):
            self.blocks.append(RELEASED if self._is_released(index) else self.pool.reuse(name))
        return len(names)

    def commit(self, memory: SequenceMemory, named: int, start: int, computed: int) -> None:
        """Name blocks as the sequence has named its own, and give back what no row reads that
        begins at `computed` or later."""
        for index in range(named, memory.named):
            origin = Origin(index, memory.name_space)
            self.pool.name(self.blocks[index], memory.names[index], origin)
        self._leave_behind(computed)

    def _leave_behind(self, computed: int) -> None:
        first = self._first_held(computed)
        for index in range(self._first, first):
            self.pool.drop([self.blocks[index]])
            self.blocks[index] = RELEASED
        self._first = max(self._first, first)

    def _first_held(self, computed: int) -> int:
        return max(self.group.kept, self.group.first_read(computed))

    def _is_released(self, index: int) -> bool:
        return self.group.kept <= index < self._first

    def entry_count(self, tokens: int) -> int:
        return self.group.blocks_of(tokens)

    def later_count(self, tokens: int) -> int:
        """Return how many blocks more it will hold at once, of a text of so many tokens."""
        released = max(0, min(self._first, len(self.blocks)) - self.group.kept)
        return max(0, self.group.blocks_of(tokens) - len(self.blocks) + released)

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        assert not slots or self._first_held(slots) >= self._first, "the window is gone"
        super().truncate(slots)
        self._first = max(self.group.kept, min(self._first, len(self.blocks)))

    def check(self) -> None:
        """Assert that it holds its last blocks, and none before."""
        super().check()
        released = [block == RELEASED for block in self.blocks]
        assert released == [self._is_released(index) for index in range(len(released))], (
            "a block within the window was released"
        )
