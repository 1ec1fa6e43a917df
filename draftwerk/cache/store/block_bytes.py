"""The bytes of blocks in shared pages, as the server reads and writes them."""

from draftwerk.cache.pages.page_layout import PageLayout


class BlockBytes:
    """Blocks by id, over the memory of all pages."""

    def __init__(self, layout: PageLayout, memory: memoryview) -> None:
        """`memory` is that of the pages, with or without the journal behind it."""
        assert len(memory) >= layout.page_bytes, "memory smaller than its pages"
        self.layout = layout
        self._memory = memory

    def copy(self, block: int) -> bytes:
        """Return the block's bytes as they are now."""
        return b"".join(self._memory[start:stop] for start, stop in self.layout.spans(block))

    def put(self, block: int, data: bytes | bytearray) -> None:
        """Write the block's bytes; no round may be writing to it."""
        assert len(data) == self.layout.block_bytes, "another size of block"
        unit, view = self.layout.unit_bytes, memoryview(data)
        for plane, (start, stop) in enumerate(self.layout.spans(block)):
            self._memory[start:stop] = view[plane * unit : (plane + 1) * unit]

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.release()
