"""Pages in memory that the server owns: they are there when this process no longer is."""

from threading import Condition, Thread

import numpy as np
import torch
from torch import Tensor

from draftwerk.cache.page_layout import PageLayout, memory_bytes
from draftwerk.machine.shared_memory import HUGE, Mapping, mapped
from draftwerk.model.batch.batch import Pages
from draftwerk.model.reference.kv_pages import private_pages
from draftwerk.speculative.protocol.journal import MoveJournal

NO_STATES = (0, 0)


class SharedPages:
    """Keys and values over a descriptor's memory, as `PageLayout` has them, and the journal."""

    def __init__(
        self,
        descriptor: int,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        states: tuple[int, int] = NO_STATES,
    ) -> None:
        """`shape` is that of the keys: [planes, blocks, block_size, kv_heads, width].

        `states` is [slots, numbers] of recurrent states, which lie behind the planes. Raises
        ValueError where the memory does not have the size of such pages.
        """
        layers, block_count, *unit = shape
        unit_bytes = int(np.prod(unit)) * dtype.itemsize
        self.layout = PageLayout(2 * layers, block_count, unit_bytes)
        self._mapping = mapped(descriptor)
        state_bytes = 4 * states[0] * states[1]
        needed = memory_bytes(self.layout.page_bytes + state_bytes)
        if len(self._mapping.view) != needed:
            raise ValueError(
                f"pages need {needed} bytes of shared memory, not {len(self._mapping.view)}"
            )
        half = self.layout.page_bytes // 2
        self.pages = Pages(self._tensor(0, shape, dtype), self._tensor(half, shape, dtype))
        if state_bytes:
            start = self.layout.page_bytes
            data = np.frombuffer(self._mapping.view[start : start + state_bytes], np.float32)
            self.pages.states = torch.from_numpy(data.reshape(states))
        self.journal = MoveJournal(self._mapping.view)
        self.huge_pages = HugePages(self.layout, self._mapping)

    def _tensor(self, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        stop = start + self.layout.page_bytes // 2
        data = np.frombuffer(self._mapping.view[start:stop], np.uint8)
        *outer, last = shape
        return torch.from_numpy(data.reshape(*outer, last * dtype.itemsize)).view(dtype)


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

    def use(self, block: int) -> None:
        """Note that a block is about to be written."""
        wanted = min((block + 1) * self._layout.unit_bytes, self._plane_bytes)
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
                first = plane * self._plane_bytes
                self._mapping.gather(first + start, first + stop)
            self._gathered = stop


def page_memory(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    descriptor: int,
    states: tuple[int, int] = NO_STATES,
) -> tuple[SharedPages | None, Pages]:
    """Return a CPU's pages, in the parent's memory where it has handed some over.

    `shape` is that of the keys, `states` [slots, numbers], and -1 no descriptor.
    """
    if descriptor < 0:
        pages = private_pages(shape, dtype)
        pages.states = torch.zeros(states) if all(states) else None
        return None, pages
    shared = SharedPages(descriptor, shape, dtype, states)
    return shared, shared.pages
