"""Where a block's bytes are in shared pages: keys, then values, one plane a layer.

    plane 0              plane 1             ...    end of planes      end of memory
    | unit of block 0, unit of block 1, ... |  ...  |  the move journal |

A block is its unit of every plane.
"""

from collections.abc import Iterator

import msgspec

JOURNAL_BYTES = 4096
"""Behind the planes, for `speculative.protocol.journal`; a page of its own."""


class PageLayout(msgspec.Struct, frozen=True):
    """The pages of one model."""

    planes: int
    """Keys and values of each layer."""
    block_count: int
    unit_bytes: int
    """What a block takes in one plane."""

    @property
    def block_bytes(self) -> int:
        """What a block takes in all planes."""
        return self.planes * self.unit_bytes

    @property
    def page_bytes(self) -> int:
        """What all planes take."""
        return self.block_count * self.block_bytes

    def spans(self, block: int) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the block's bytes in each plane."""
        assert 0 <= block < self.block_count, "a block outside the pages"
        for plane in range(self.planes):
            start = (plane * self.block_count + block) * self.unit_bytes
            yield start, start + self.unit_bytes


def memory_bytes(page_bytes: int) -> int:
    """Return what pages and their journal take together."""
    return -(-page_bytes // JOURNAL_BYTES) * JOURNAL_BYTES + JOURNAL_BYTES
