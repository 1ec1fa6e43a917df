"""Where a block's bytes are in shared pages: keys, then values, one plane a layer.

    plane 0              plane 1             ...    end of planes      end of memory
    | unit of block 0, unit of block 1, ... |  ...  |  the move journal |

A block is its unit of every plane. Where layers with windows have blocks of their own, these come
behind all others, with planes of their own; their ids go on from the others'.
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
    """The bytes of a block in one plane."""
    start: int = 0
    """Where the first plane begins."""
    first: int = 0
    """The first block's id."""
    window: "PageLayout | None" = None
    """The pages of layers with windows, where they have blocks of their own."""

    @property
    def block_bytes(self) -> int:
        """The bytes of a block in all planes."""
        return self.planes * self.unit_bytes

    @property
    def page_bytes(self) -> int:
        """The bytes of all planes."""
        size = self.block_count * self.block_bytes
        return size if self.window is None else size + self.window.page_bytes

    def with_window(self, planes: int, block_count: int, unit_bytes: int) -> "PageLayout":
        """Return the layout with blocks of layers with windows behind it."""
        window = PageLayout(
            planes, block_count, unit_bytes, self.page_bytes, self.first + self.block_count
        )
        return msgspec.structs.replace(self, window=window)

    def spans(self, block: int) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the block's bytes in each plane."""
        if self.window is not None and block >= self.window.first:
            yield from self.window.spans(block)
            return
        assert 0 <= block - self.first < self.block_count, "a block outside the pages"
        for plane in range(self.planes):
            before = plane * self.block_count + block - self.first
            start = self.start + before * self.unit_bytes
            yield start, start + self.unit_bytes


def memory_bytes(page_bytes: int) -> int:
    """Return what pages and their journal take together."""
    return -(-page_bytes // JOURNAL_BYTES) * JOURNAL_BYTES + JOURNAL_BYTES
