"""Where ranks of one machine put together the columns that each computed: `threads/meeting.h`."""

import weakref

import torch
from torch import Tensor

from draftwerk.model.native.library import library

HEAD_BYTES = 4096
BUFFER_BYTES = 2**22
"""The bytes of each of two buffers: more rows than fit are handed over in turns."""
FLOAT_BYTES = 4


def meeting_bytes(widest: int) -> int:
    """Return the memory of a meeting over rows of at most so many columns, in whole pages."""
    row = -(-widest * FLOAT_BYTES // HEAD_BYTES) * HEAD_BYTES
    return HEAD_BYTES + 2 * max(BUFFER_BYTES, row)


class SharedAllGather:
    """One rank's seat in a meeting of several, over memory that all of them map."""

    def __init__(
        self, address: int, size: int, ranks: int, *, only_gives: bool = False, keeps: object = None
    ) -> None:
        """`keeps` is what must live as long as the memory at the address is used."""
        self._library = library()
        self._keeps = keeps
        self.handle: int = self._library.meeting_create(address, size, ranks, only_gives)
        weakref.finalize(self, self._library.meeting_destroy, self.handle)

    def gather(self, values: Tensor, own: range) -> None:
        """Give the own columns of [rows, columns] float32, and take all others, in place.

        Raises ValueError once a rank is lost.
        """
        assert values.dtype == torch.float32 and values.is_contiguous()
        self._library.meeting_gather(
            self.handle, values.data_ptr(), *values.shape, own.start, len(own)
        )

    def give_up(self) -> None:
        """Let nobody wait any longer: a rank is lost."""
        self._library.meeting_give_up(self.handle)
