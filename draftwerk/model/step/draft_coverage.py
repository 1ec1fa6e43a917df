"""How far each block's slots hold the draft model's own KV of the tokens the target has there."""

import numpy as np


class DraftCoverage:
    """One count per block: its leading slots that were fed to the draft model.

    A sequence that opens on cached blocks was fed by another; unless the draft model started
    later, or was not asked to read along. Counting wrong costs acceptance, never text.
    """

    def __init__(self, block_count: int, block_size: int) -> None:
        self.block_size = block_size
        self.filled = np.zeros(block_count, np.int32)

    def copy(self, copies: tuple[tuple[int, int], ...]) -> None:
        """Follow block copies, made as if at once."""
        if copies:
            sources, targets = np.array(copies).T
            self.filled[targets] = self.filled[sources]

    def leading(self, blocks: tuple[int, ...], end: int) -> int:
        """Return how many slots of a table, up to `end`, are filled without a gap."""
        for index in range(-(-end // self.block_size)):
            filled = int(self.filled[blocks[index]])
            if filled < self.block_size:
                return min(end, index * self.block_size + filled)
        return end

    def fed(self, blocks: tuple[int, ...], start: int, stop: int) -> None:
        """Note that slots start .. stop were written, and those before are filled."""
        size = self.block_size
        for index in range(start // size, -(-stop // size)):
            self.filled[blocks[index]] = min(size, stop - index * size)

    def missed(self, blocks: tuple[int, ...], start: int, stop: int) -> None:
        """Note that the target wrote slots start .. stop and the draft model did not."""
        size = self.block_size
        for index in range(start // size, -(-stop // size)):
            block = blocks[index]
            self.filled[block] = min(self.filled[block], max(0, start - index * size))

    def check(self) -> None:
        """Assert that no block is filled beyond its size."""
        assert ((self.filled >= 0) & (self.filled <= self.block_size)).all()
