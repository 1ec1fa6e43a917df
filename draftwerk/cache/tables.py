"""A block table (PagedAttention): where one sequence's KV is, slot by slot."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.eviction.replacement import Origin

ROOT = bytes(16)
"""The name before the first block: as long as any other, so no name space can pose as a parent."""


class BlockNamer:
    """Chained keyed hashes: the tokens alone do not give the names.

    The name space (a tenant or a shared salt) enters each name: prefixes never match across it.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def name(self, parent: bytes, tokens: Sequence[int], name_space: str) -> bytes:
        """Return the name of a full block; `parent` is the previous block's name or ROOT."""
        digest = blake2b(parent, digest_size=16, key=self._secret)
        # The space's length comes first, so that no space can pose as tokens.
        space = name_space.encode("utf-8", "surrogatepass")
        digest.update(len(space).to_bytes(4, "little"))
        digest.update(space)
        digest.update(array("q", tokens).tobytes())
        return digest.digest()

    def chain(self, tokens: Sequence[int], block_size: int, name_space: str) -> Iterator[bytes]:
        """Yield the names of a text's full blocks, each with all that comes before it."""
        name = ROOT
        for start in range(0, len(tokens) - block_size + 1, block_size):
            name = self.name(name, tokens[start : start + block_size], name_space)
            yield name


BlockCopy = tuple[int, int]
"""(from, to): a block's content to copy before the round writes anything."""
RELEASED = -1
"""In place of a block that is held no longer, since no row reads it again."""


class BlockList:
    """Maps slot s to offset s % block_size of block `blocks[s // block_size]`."""

    def __init__(self, pool: BlockPool) -> None:
        self.blocks: list[int] = []
        self.pool = pool

    @property
    def block_size(self) -> int:
        """Slots of a block."""
        return self.pool.block_size

    @property
    def slots(self) -> int:
        """Slots that there are blocks for now."""
        return len(self.blocks) * self.pool.block_size

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

    def free_slots(self, known: int, shares: int) -> int:
        """Return how many slots there are behind those `known`, with a share of what is free."""
        held = max(self.pool.blocks_for(known), len(self.blocks))
        return held * self.block_size - known + self.pool.available // shares * self.block_size

    def shared_from(self, first: int) -> list[int]:
        """Return which blocks, by index from `first` on, others hold too."""
        return [i for i in range(first, len(self.blocks)) if self.pool.shared(self.blocks[i])]

    def first_blocks(self, slots: int) -> tuple[int, ...]:
        """Return the blocks of the first `slots` slots."""
        return tuple(self.blocks[: self.pool.blocks_for(slots)])

    def has_copies(self, start: int) -> bool:
        """Return whether the pool has blocks for copies of all that are shared from a slot on."""
        return len(self.shared_from(start // self.block_size)) <= self.pool.available

    def make_writable(self, start: int) -> list[BlockCopy] | None:
        """Copy on write: replace shared blocks from the slot `start` on by copies.

        Returns the copies to make, or None (and changes nothing) if the pool is too empty.
        """
        # From the start of its block on: tokens before `start` are copied along.
        first = start // self.block_size
        shared = self.shared_from(first)
        fresh = self.pool.take(len(shared))
        if fresh is None:
            return None
        copies = [(self.blocks[i], block) for i, block in zip(shared, fresh, strict=True)]
        for i, block in zip(shared, fresh, strict=True):
            self.pool.drop([self.blocks[i]])
            self.blocks[i] = block
        for block in self.blocks[first:]:
            self.pool.unname(block)  # after a truncation into a named block
        return copies

    def share_with(self, twin: "BlockList") -> None:
        """Have another one, which is empty, hold the same blocks."""
        for block in self.blocks:
            if block != RELEASED:
                self.pool.hold(block)
        twin.blocks = list(self.blocks)

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        keep = self.pool.blocks_for(slots)
        # The last first: see `BlockPool.drop`. A prefix is of use without its end, and not the
        # reverse.
        self.pool.drop(block for block in reversed(self.blocks[keep:]) if block != RELEASED)
        del self.blocks[keep:]

    def forget(self) -> None:
        """Remove every block from the prefix index: its content must not be served again."""
        for block in self.blocks:
            if block != RELEASED:
                self.pool.forget(block)

    def held(self) -> list[int]:
        """Return the blocks that are held."""
        return [block for block in self.blocks if block != RELEASED]

    def check(self) -> None:
        """Assert that each block is held, and stands for one part of the text."""
        held = self.held()
        assert len(set(held)) == len(held), "one block appears twice in a table"
        assert all(self.pool.holders(block) > 0 for block in held), "a block is not held"


class NameSalt(NamedTuple):
    """From where on a table's content is not what its tokens alone would give."""

    start: int
    """The first such slot."""
    name: str
    """Digest of all that the content depends on besides the tokens before it."""


class BlockTable(BlockList):
    """The blocks of one sequence.

    |<------- named: full, committed, shareable ------->|<-- private or forked -->|
    blocks[0]            ...            blocks[named-1]  blocks[named] ... blocks[-1]
    """

    def __init__(
        self,
        pool: BlockPool,
        namer: BlockNamer,
        name_space: str,
        salt: NameSalt | None = None,
    ) -> None:
        """With a salt, blocks from some slot on are found under the same salt alone."""
        super().__init__(pool)
        self.name_space = name_space
        self._namer = namer
        self._salt = salt
        self._names: list[bytes] = []

    @property
    def names(self) -> Sequence[bytes]:
        """The names of the first blocks, as far as they are full and committed."""
        return self._names

    def match(
        self,
        tokens: Sequence[int],
        names: list[bytes] | None = None,
        usable: Callable[[Sequence[bytes]], int] = len,
    ) -> int:
        """Start an empty table with every known block of the prompt; returns the slots found.

        The last token is never among them: something must be left to compute. `names` are those of
        the tokens' first blocks, as far as they were needed before; what is needed now is added.
        `usable` says how many of the blocks that are found a text can go on behind.
        """
        assert not self.blocks, "only an empty table can match a prefix"
        cached_names = self.known(tokens, names)
        self._names = cached_names[: usable(cached_names)]
        for name in self._names:
            block = self.pool.find(name)
            assert block is not None, "it was found before"
            self.pool.reuse(block)
            self.blocks.append(block)
        return self.slots

    def known(self, tokens: Sequence[int], names: list[bytes] | None = None) -> list[bytes]:
        """Return the names of a prompt's first blocks that are in the pool, and take nothing;
        `names` are as in `match`."""
        heads = self._names_of(tokens, [] if names is None else names)
        # Up to the first one missing: its tokens would have to be computed before those behind it.
        return [*takewhile(lambda name: self.pool.find(name) is not None, heads)]

    def named(self, tokens: Sequence[int], count: int, names: list[bytes]) -> list[bytes]:
        """Return the names of a prompt's first blocks, at least `count`, which `names` keeps."""
        size = self.pool.block_size
        for index in range(len(names), count):
            names.append(self._next_name(names, tokens[index * size : (index + 1) * size]))
        return names

    def commit(self, tokens: Sequence[int], computed: int) -> None:
        """Name each block whose slots are all below `computed`, the count of committed KV slots."""
        size = self.pool.block_size
        for i in range(len(self._names), computed // size):
            name = self._next_name(self._names, tokens[i * size : (i + 1) * size])
            self._names.append(name)
            self.pool.name(self.blocks[i], name, Origin(i, self.name_space))

    def fork(self) -> "BlockTable":
        """Return a second table over the same blocks, copy-on-write."""
        twin = BlockTable(self.pool, self._namer, self.name_space, self._salt)
        self.share_with(twin)
        twin._names = list(self._names)
        return twin

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        super().truncate(slots)
        del self._names[slots // self.pool.block_size :]

    def release(self) -> None:
        """Give back every block; the named ones stay in the pool's cache."""
        self.truncate(0)

    def check(self) -> None:
        """Assert that the table holds what it names."""
        super().check()
        assert len(self._names) <= len(self.blocks), "a name has no block"

    def _names_of(self, tokens: Sequence[int], names: list[bytes]) -> Iterator[bytes]:
        """Yield the names of a prompt's blocks but its last token's; `names` keeps those made."""
        size = self.pool.block_size
        for index in range((len(tokens) - 1) // size):
            yield self.named(tokens, index + 1, names)[index]

    def _next_name(self, names: Sequence[bytes], tokens: Sequence[int]) -> bytes:
        """Return the name of the block behind those that are named."""
        parent = names[-1] if names else ROOT
        space, end = self.name_space, (len(names) + 1) * self.pool.block_size
        # From this block on the tokens alone do not say what is in it.
        if self._salt is not None and end > self._salt.start:
            space = f"{space} {self._salt.name}"
        return self._namer.name(parent, tokens, space)
