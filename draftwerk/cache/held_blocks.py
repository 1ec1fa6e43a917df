"""Blocks of one pool that a sequence holds, in the order of its tokens."""

from draftwerk.cache.blocks import BlockPool

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
