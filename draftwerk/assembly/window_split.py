"""How the cache's memory is divided between layers with windows and the others."""

from fractions import Fraction

import msgspec

from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS, WindowBlocks

LEAST_SHARE = Fraction(1, 4)
"""Blocks of layers with windows, in those of the others, at least: texts are assumed to be up to
four times as long as what their windows take. Shorter ones find less room, longer ones more."""
ROW_MAX = 1024
"""Slots that a row writes at most: chunks of prompts are half as long."""
TEXTS_MIN = 2
"""Windows of so many texts fit at once, or all layers share their blocks."""


class GroupSizes(msgspec.Struct, frozen=True):
    """The sizes of a model and of its blocks."""

    together_bytes: int
    """The bytes of a block of all layers; a draft model's are among them."""
    shared_bytes: int
    """The bytes of a block in layers without windows; a draft model's are among them."""
    window_bytes: int
    """The bytes of a block in layers with windows."""
    window: int
    """The longest of these."""
    context_max: int
    block_size: int
    kept: int = 0
    """Positions at a text's beginning that are never given up."""

    @property
    def kept_blocks(self) -> int:
        return -(-self.kept // self.block_size)

    @property
    def held(self) -> int:
        """Blocks that the windows of one text take."""
        return -(-(self.window + ROW_MAX) // self.block_size) + 1 + self.kept_blocks


def split(memory: int, sizes: GroupSizes) -> tuple[int, WindowBlocks]:
    """Return the blocks of the other layers, and those of layers with windows.

    None of the latter where no text is long enough for them to pay, or memory is too small.
    """
    together = memory // sizes.together_bytes
    whole = -(-sizes.context_max // sizes.block_size)
    share = max(LEAST_SHARE, Fraction(sizes.held, whole))
    if not sizes.window_bytes or share >= 1:
        return together, NO_WINDOW_BLOCKS
    count = int(memory / (sizes.shared_bytes + share * sizes.window_bytes))
    windows = (memory - count * sizes.shared_bytes) // sizes.window_bytes
    if not sizes.shared_bytes:  # of blocks that take nothing there are enough for the longest text
        count = max(count, whole)
    if windows < (1 if sizes.kept else TEXTS_MIN) * sizes.held:
        return together, NO_WINDOW_BLOCKS
    # A tile may read what lies before the window: a whole block of the text stands for it.
    window = max(sizes.window, sizes.block_size + 1)
    return count, WindowBlocks(windows, window, ROW_MAX, sizes.kept_blocks)
