"""A block table (PagedAttention): where one sequence's KV is, slot by slot."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import ROOT, BlockNamer
from draftwerk.cache.replacement import Origin

BlockCopy = tuple[int, int]
"""(from, to): a block's content to copy before the round writes anything."""


class Blended(NamedTuple):
    """From where on a table's content is not what its tokens alone would give."""

    start: int
    """The first such slot."""
    name: str
    """Digest of all that the content depends on besides the tokens before it."""


class BlockTable:
    """Maps slot s to offset s % block_size of block `blocks[s // block_size]`.

    |<------- named: full, committed, shareable ------->|<-- private or forked -->|
    blocks[0]            ...            blocks[named-1]  blocks[named] ... blocks[-1]
    """

    def __init__(
        self, pool: BlockPool, namer: BlockNamer, name_space: str, blended: "Blended | None" = None
    ) -> None:
        """With `blended`, blocks from some slot on are found by the same blend alone."""
        self.blocks: list[int] = []
        self._pool = pool
        self._namer = namer
        self._name_space = name_space
        self._blended = blended
        self._names: list[bytes] = []

    @property
    def block_size(self) -> int:
        """Slots of a block."""
        return self._pool.block_size

    @property
    def names(self) -> Sequence[bytes]:
        """Of the first blocks, those that are full and committed."""
        return self._names

    @property
    def slots(self) -> int:
        """Slots that the table can hold now."""
        return len(self.blocks) * self._pool.block_size

    def match(self, tokens: Sequence[int], names: list[bytes] | None = None) -> int:
        """Start an empty table with every known block of the prompt; returns the slots found.

        The last token is never among them: something must be left to compute. `names` are those of
        the tokens' first blocks, as far as they were needed before; what is needed now is added.
        """
        assert not self.blocks, "only an empty table can match a prefix"
        for name in self._names_of(tokens, [] if names is None else names):
            block = self._pool.find(name)
            if block is None:
                break
            self._pool.reuse(block)
            self.blocks.append(block)
            self._names.append(name)
        return self.slots

    def known_slots(self, tokens: Sequence[int], names: list[bytes] | None = None) -> int:
        """Return how many slots `match` would find, and take nothing; `names` are as there."""
        heads = self._names_of(tokens, [] if names is None else names)
        found = takewhile(lambda name: self._pool.find(name) is not None, heads)
        return sum(1 for _ in found) * self._pool.block_size

    def named(self, tokens: Sequence[int], count: int, names: list[bytes]) -> list[bytes]:
        """Return the names of a prompt's first blocks, at least `count`, which `names` keeps."""
        size = self._pool.block_size
        for index in range(len(names), count):
            names.append(self._next_name(names, tokens[index * size : (index + 1) * size]))
        return names

    def reserve(self, slots: int) -> bool:
        """Grow to at least `slots` slots, or change nothing and return False."""
        need = self._pool.blocks_for(slots) - len(self.blocks)
        if need <= 0:
            return True
        blocks = self._pool.take(need)
        if blocks is None:
            return False
        self.blocks.extend(blocks)
        return True

    def own(self, start: int) -> list[BlockCopy] | None:
        """Make every slot from `start` on safe to write: shared blocks are replaced by copies.

        Returns the copies to make, or None (and changes nothing) if the pool is too empty.
        """
        first = start // self._pool.block_size
        shared = [i for i in range(first, len(self.blocks)) if self._pool.shared(self.blocks[i])]
        fresh = self._pool.take(len(shared))
        if fresh is None:
            return None
        copies = [(self.blocks[i], block) for i, block in zip(shared, fresh, strict=True)]
        for i, block in zip(shared, fresh, strict=True):
            self._pool.drop([self.blocks[i]])
            self.blocks[i] = block
        for block in self.blocks[first:]:
            self._pool.unname(block)  # after a truncation into a named block
        return copies

    def commit(self, tokens: Sequence[int], computed: int) -> None:
        """Name each block whose slots are all below `computed`, the count of committed KV slots."""
        size = self._pool.block_size
        for i in range(len(self._names), computed // size):
            name = self._next_name(self._names, tokens[i * size : (i + 1) * size])
            self._names.append(name)
            self._pool.name(self.blocks[i], name, Origin(i, self._name_space))

    def fork(self) -> "BlockTable":
        """Return a second table over the same blocks, copy-on-write (see `own`)."""
        twin = BlockTable(self._pool, self._namer, self._name_space, self._blended)
        for block in self.blocks:
            self._pool.hold(block)
        twin.blocks = list(self.blocks)
        twin._names = list(self._names)
        return twin

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        keep = self._pool.blocks_for(slots)
        self._pool.drop(reversed(self.blocks[keep:]))
        del self.blocks[keep:]
        del self._names[slots // self._pool.block_size :]

    def forget(self) -> None:
        """Remove every block from the prefix index: its content must not be served again."""
        for block in self.blocks:
            self._pool.forget(block)

    def release(self) -> None:
        """Give back every block; the named ones stay in the pool's cache."""
        self.truncate(0)

    def check(self) -> None:
        """Assert that the table holds what it names."""
        assert len(self._names) <= len(self.blocks), "a name has no block"
        assert len(set(self.blocks)) == len(self.blocks), "one block appears twice in a table"
        assert all(self._pool.holders(block) > 0 for block in self.blocks), "a block is not held"

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
