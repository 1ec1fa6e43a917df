"""A block table (PagedAttention): where one sequence's KV is, slot by slot."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple, TypedDict

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.held_blocks import BlockCopy, HeldBlocks
from draftwerk.cache.prefix import ROOT, BlockNamer
from draftwerk.cache.replacement import Origin
from draftwerk.cache.window_table import WindowGroup, WindowTable


class Blended(NamedTuple):
    """From where on a table's content is not what its tokens alone would give."""

    start: int
    """The first such slot."""
    name: str
    """Digest of all that the content depends on besides the tokens before it."""


class RowBlocks(TypedDict):
    """The block tables of a row."""

    blocks: tuple[int, ...]
    window_blocks: tuple[int, ...]


class BlockTable(HeldBlocks):
    """The blocks of one sequence, and those of its layers with windows.

    |<------- named: full, committed, shareable ------->|<-- private or forked -->|
    blocks[0]            ...            blocks[named-1]  blocks[named] ... blocks[-1]
    """

    def __init__(
        self,
        pool: BlockPool,
        namer: BlockNamer,
        name_space: str,
        blended: "Blended | None" = None,
        group: WindowGroup | None = None,
    ) -> None:
        """With `blended`, blocks from some slot on are found by the same blend alone; with a
        `group`, layers with windows have blocks of their own."""
        super().__init__(pool)
        self.window = None if group is None else WindowTable(group)
        self._namer = namer
        self._name_space = name_space
        self._blended = blended
        self._names: list[bytes] = []

    @property
    def names(self) -> Sequence[bytes]:
        """Of the first blocks, those that are full and committed."""
        return self._names

    @property
    def row_slots(self) -> int:
        """Slots that a row may write to now, as far as they go."""
        return self.slots if self.window is None else min(self.slots, self.window.slots)

    def parts(self) -> Iterator[HeldBlocks]:
        """Yield the blocks in each pool."""
        yield self
        if self.window is not None:
            yield self.window

    def row_blocks(self, slots: int) -> "RowBlocks":
        """Return what a row is told that reaches to so many slots."""
        count = self._pool.blocks_for(slots)
        window = () if self.window is None else tuple(self.window.blocks[:count])
        return {"blocks": tuple(self.blocks[:count]), "window_blocks": window}

    def match(self, tokens: Sequence[int], names: list[bytes] | None = None) -> int:
        """Start an empty table with every known block of the prompt; returns the slots found.

        The last token is never among them: something must be left to compute. `names` are those of
        the tokens' first blocks, as far as they were needed before; what is needed now is added.
        """
        assert not self.blocks, "only an empty table can match a prefix"
        self._names = self._found(tokens, names)
        for name in self._names:
            block = self._pool.find(name)
            assert block is not None, "it was found before"
            self._pool.reuse(block)
            self.blocks.append(block)
        if self.window is not None:
            self.window.enter(self._names)
        return self.slots

    def known_slots(self, tokens: Sequence[int], names: list[bytes] | None = None) -> int:
        """Return how many slots `match` would find, and take nothing; `names` are as there."""
        return len(self._found(tokens, names)) * self._pool.block_size

    def _found(self, tokens: Sequence[int], names: list[bytes] | None) -> list[bytes]:
        """Return the names of the first blocks that a prompt can go on behind."""
        heads = self._names_of(tokens, [] if names is None else names)
        found = [*takewhile(lambda name: self._pool.find(name) is not None, heads)]
        return found if self.window is None else found[: self.window.group.longest_hit(found)]

    def named(self, tokens: Sequence[int], count: int, names: list[bytes]) -> list[bytes]:
        """Return the names of a prompt's first blocks, at least `count`, which `names` keeps."""
        size = self._pool.block_size
        for index in range(len(names), count):
            names.append(self._next_name(names, tokens[index * size : (index + 1) * size]))
        return names

    def reserve(self, slots: int) -> bool:
        """Take blocks for a whole text, or change nothing and return False.

        Those of layers with windows are taken row by row: see `reserve_row`.
        """
        return self.grow(slots)

    def reserve_row(self, slots: int) -> bool:
        """Take every block that a row of so many slots needs; False if not all can be had."""
        return self.grow(slots) and (self.window is None or self.window.grow(slots))

    def own(self, start: int) -> list[BlockCopy] | None:
        """Make every slot from `start` on safe to write: shared blocks are replaced by copies.

        Returns the copies to make, or None (and changes nothing) if a pool is too empty.
        """
        first = start // self._pool.block_size
        if (window := self.window) is None:
            return self.replace_shared(first)
        if len(self.shared_from(first)) > self._pool.available:
            return None
        further = window.own(start)
        if further is None:
            return None
        return [*(self.replace_shared(first) or ()), *further]

    def commit(self, tokens: Sequence[int], computed: int) -> None:
        """Name each block whose slots are all below `computed`, the count of committed KV slots;
        what lies behind the window of later rows goes home."""
        size = self._pool.block_size
        for i in range(len(self._names), computed // size):
            name = self._next_name(self._names, tokens[i * size : (i + 1) * size])
            self._names.append(name)
            origin = Origin(i, self._name_space)
            self._pool.name(self.blocks[i], name, origin)
            if self.window is not None:
                self.window.name(i, name, origin)
        if self.window is not None:
            self.window.leave_behind(computed)

    def fork(self) -> "BlockTable":
        """Return a second table over the same blocks, copy-on-write (see `own`)."""
        twin = BlockTable(self._pool, self._namer, self._name_space, self._blended)
        self.share_with(twin)
        twin.window = None if self.window is None else self.window.fork()
        twin._names = list(self._names)
        return twin

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        self.drop_behind(slots)
        if self.window is not None:
            self.window.truncate(slots)
        del self._names[slots // self._pool.block_size :]

    def forget(self) -> None:
        """Remove every block from the prefix index: its content must not be served again."""
        super().forget()
        if self.window is not None:
            self.window.forget()

    def release(self) -> None:
        """Give back every block; the named ones stay in the pool's cache."""
        self.truncate(0)

    def check(self) -> None:
        """Assert that the table holds what it names."""
        super().check()
        assert len(self._names) <= len(self.blocks), "a name has no block"
        if self.window is not None:
            self.window.check()

    def _names_of(self, tokens: Sequence[int], names: list[bytes]) -> Iterator[bytes]:
        """Yield the names of a prompt's blocks but its last token's; `names` keeps those made."""
        size = self._pool.block_size
        for index in range((len(tokens) - 1) // size):
            yield self.named(tokens, index + 1, names)[index]

    def _next_name(self, names: Sequence[bytes], tokens: Sequence[int]) -> bytes:
        """Return the name of the block behind those that are named."""
        parent = names[-1] if names else ROOT
        space, end = self._name_space, (len(names) + 1) * self._pool.block_size
        if self._blended is not None and end > self._blended.start:
            space = f"{space} {self._blended.name}"
        return self._namer.name(parent, tokens, space)
