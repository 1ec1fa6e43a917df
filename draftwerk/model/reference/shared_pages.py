"""Pages in memory that the server owns: they are there when this process no longer is."""

from collections.abc import Collection
from math import prod
from threading import Condition, Thread

import numpy as np
import torch
from torch import Tensor

from draftwerk.cache.pages.page_layout import PageLayout, memory_bytes
from draftwerk.machine.shared_memory import HUGE, Mapping, mapped
from draftwerk.model.batch.batch import Pages
from draftwerk.model.reference.kv_pages import private_pages, tensor_over
from draftwerk.speculative.protocol.journal import MoveJournal

NO_STATES = (0, 0)
NO_WINDOW: tuple[int, ...] = ()


class SharedPages:
    """Keys and values over a descriptor's memory, as `PageLayout` has them, and the journal."""

    def __init__(
        self,
        descriptor: int,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        states: tuple[int, int] = NO_STATES,
        window: tuple[int, ...] = NO_WINDOW,
    ) -> None:
        """`shape` is that of the keys: [planes, blocks, block_size, kv_heads, width].

        `states` is [slots, numbers] of recurrent states, which lie behind the planes; `window` is
        the shape of the keys of layers with windows, where they have blocks of their own. Raises
        ValueError where the memory does not have the size of such pages.
        """
        layers, block_count, *unit = shape
        self.layout = PageLayout(2 * layers, block_count, prod(unit) * dtype.itemsize)
        if window:
            planes, blocks, *unit = window
            unit_bytes = prod(unit) * dtype.itemsize
            self.layout = self.layout.with_window(2 * planes, blocks, unit_bytes)
        self._mapping = mapped(descriptor)
        state_bytes = 4 * states[0] * states[1]
        needed = memory_bytes(self.layout.page_bytes + state_bytes)
        if len(self._mapping.view) != needed:
            raise ValueError(
                f"pages need {needed} bytes of shared memory, not {len(self._mapping.view)}"
            )
        self.pages = self._pages(self.layout, shape, dtype)
        if (own := self.layout.window) is not None:
            self.pages.window = self._pages(own, window, dtype)
        if state_bytes:
            start = self.layout.page_bytes
            data = np.frombuffer(self._mapping.view[start : start + state_bytes], np.float32)
            self.pages.states = torch.from_numpy(data.reshape(states))
        self.journal = MoveJournal(self._mapping.view)
        self.huge_pages = [HugePages(self.layout, self._mapping)]
        if self.layout.window is not None:
            self.huge_pages.append(HugePages(self.layout.window, self._mapping))

    def use(self, blocks: Collection[int]) -> None:
        """Note that blocks are about to be written."""
        for each in self.huge_pages:
            each.use(blocks)

    def _pages(self, layout: PageLayout, shape: tuple[int, ...], dtype: torch.dtype) -> Pages:
        half = layout.block_count * layout.block_bytes // 2
        keys = self._tensor(layout.start, half, shape, dtype)
        return Pages(keys, self._tensor(layout.start + half, half, shape, dtype))

    def _tensor(self, start: int, size: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        data = np.frombuffer(self._mapping.view[start : start + size], np.uint8)
        return tensor_over(data, shape, dtype)


class HugePages:
    """Gathers the blocks in use into huge pages, on a thread of its own, as more come into use.

    The pool hands out low blocks first, so what is in use begins at block 0 and grows.
    """

    def __init__(self, layout: PageLayout, mapping: Mapping) -> None:
        self._layout, self._mapping = layout, mapping
        self._wanted = self._gathered = 0
        """Bytes at the head of every plane."""
        self._changed = Condition()
        self._is_running = False

    def use(self, blocks: Collection[int]) -> None:
        """Note that blocks are about to be written, as far as they are of this layout."""
        first, stop = self._layout.first, self._layout.first + self._layout.block_count
        last = max((block for block in blocks if first <= block < stop), default=first)
        wanted = min((last - first + 1) * self._layout.unit_bytes, self._plane_bytes)
        if wanted <= self._wanted:
            return
        # To the end of the huge page: its other small pages come with it.
        wanted = min(-(-wanted // HUGE) * HUGE, self._plane_bytes)
        with self._changed:
            self._wanted = wanted
            self._changed.notify()
        if not self._is_running:
            self._is_running = True
            Thread(target=self._run, daemon=True).start()

    @property
    def _plane_bytes(self) -> int:
        return self._layout.block_count * self._layout.unit_bytes

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._gathered < self._wanted)
                start, stop = self._gathered, self._wanted
            for plane in range(self._layout.planes):
                first = self._layout.start + plane * self._plane_bytes
                self._mapping.gather(first + start, first + stop)
            self._gathered = stop


def page_memory(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    descriptor: int,
    states: tuple[int, int] = NO_STATES,
    window: tuple[int, ...] = NO_WINDOW,
) -> tuple[SharedPages | None, Pages]:
    """Return a CPU's pages, in the parent's memory where it has handed some over.

    `shape` is that of the keys, `states` [slots, numbers], `window` the shape of the keys of layers
    with windows, and -1 no descriptor.
    """
    if descriptor < 0:
        pages = private_pages(shape, dtype)
        pages.window = private_pages(window, dtype) if window else None
        pages.states = torch.zeros(states) if all(states) else None
        return None, pages
    shared = SharedPages(descriptor, shape, dtype, states, window)
    return shared, shared.pages
