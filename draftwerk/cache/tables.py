"""A block table (PagedAttention): where one sequence's KV is, slot by slot."""

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from hashlib import blake2b
from typing import ClassVar, NamedTuple, Self

from draftwerk.cache.blocks import BlockPool

ROOT = bytes(16)
"""The name before the first block: as long as any other, so no name space can pose as a parent."""


class BlockNamer:
    """Chained keyed hashes: the tokens alone do not give the names.

    The name space (a tenant or a shared salt) enters each name: prefixes never match across it.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def name(self, parent: bytes, tokens: Sequence[int], name_space: str) -> bytes:
        """Return the name of a full block; `parent` is that of the block before, or ROOT."""
        digest = blake2b(parent, digest_size=16, key=self._secret)
        # The space's length comes first, so that no space can pose as tokens.
        space = name_space.encode("utf-8", "surrogatepass")
        digest.update(len(space).to_bytes(4, "little"))
        digest.update(space)
        digest.update(array("q", tokens).tobytes())
        return digest.digest()

    def chain(self, tokens: Sequence[int], block_size: int, name_space: str) -> Iterator[bytes]:
        """Yield the names of a text's full blocks, each with all that comes before it, unsalted."""
        name = ROOT
        for start in range(0, len(tokens) - block_size + 1, block_size):
            name = self.name(name, tokens[start : start + block_size], name_space)
            yield name


class NameSalt(NamedTuple):
    """A slot from which on a text's content is not what its tokens alone would give."""

    start: int
    name: str
    """Digest of all that the content depends on besides the tokens before it."""


BlockCopy = tuple[int, int]
"""(from, to): a block's content to copy before the round writes anything."""
RELEASED = -1
"""In place of a block that is held no longer, since no row reads it again."""


class BlockTable:
    """Maps slot s to offset s % block_size of block `blocks[s // block_size]`."""

    row_field: ClassVar[str]
    """The option of a `Row` that a table of another kind than a sequence's own gives."""

    def __init__(self, pool: BlockPool) -> None:
        self.blocks: list[int] = []
        self.pool = pool
        self.block_size = pool.block_size

    def grow(self, slots: int) -> bool:
        """Grow to at least `slots` slots, or change nothing and return False."""
        need = self.pool.blocks_for(slots) - len(self.blocks)
        if need <= 0:
            return True
        blocks = self.pool.take(need)
        if blocks is None:
            return False
        self.blocks.extend(blocks)
        return True

    def first_blocks(self, slots: int) -> tuple[int, ...]:
        """Return the blocks of the first `slots` slots."""
        return tuple(self.blocks[: self.pool.blocks_for(slots)])

    def make_writable(self, first: int, shared: list[int]) -> list[BlockCopy]:
        """Copy on write, by index from `first` on: replace the shared blocks by copies, for which
        the pool has room; returns the copies to make."""
        copies = list[BlockCopy]()
        if shared:
            fresh = self.pool.take(len(shared))
            assert fresh is not None, "the pool has room for the copies"
            copies = list(zip(shared, fresh, strict=True))
            replaced = dict(copies)
            self.blocks[first:] = [replaced.get(block, block) for block in self.blocks[first:]]
            self.pool.drop(shared)
        self.pool.unname(self.blocks[first:])  # after a truncation into a named block
        return copies

    def fork(self) -> Self:
        """Return a second table over the same blocks, copy-on-write."""
        for block in self.held():
            self.pool.hold(block)
        twin = copy(self)
        twin.blocks = list(self.blocks)
        return twin

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        keep = self.pool.blocks_for(slots)
        # The last first: see `BlockPool.drop`. A prefix is of use without its end, and not the
        # reverse.
        self.pool.drop(block for block in reversed(self.blocks[keep:]) if block != RELEASED)
        del self.blocks[keep:]

    def held(self) -> list[int]:
        """Return the blocks that are held."""
        return [block for block in self.blocks if block != RELEASED]

    def check(self) -> None:
        """Assert that each block is held, and stands for one part of the text."""
        held = self.held()
        assert len(set(held)) == len(held), "one block appears twice in a table"
        assert all(self.pool.holders(block) > 0 for block in held), "a block is not held"
