"""Memory that several processes map: made by one, handed to others as an open descriptor.

Linux has memfd; elsewhere an unlinked file does the same, and everywhere where more is wanted than
there is memory: the system reads and drops its pages. Either is given its memory only as it is
first written, and lives as long as one process holds it, however the others end.
"""

import ctypes
import mmap
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field

HUGE = 2**21
MADV_COLLAPSE = 25
"""Since Linux 6.1: make these pages one huge page, whatever the system's setting for shared ones.

Weights and keys are streamed; with small pages the prefetcher stops at every boundary.
"""
PROT_NONE, MAP_FIXED = 0, 0x10


@dataclass(slots=True)
class SharedMemory:
    """Zeroed memory of `size` bytes, by its descriptor; the process that made it closes it."""

    descriptor: int
    size: int

    @classmethod
    def make(cls, size: int, name: str = "draftwerk", folder: str = "") -> "SharedMemory":
        """Return new memory, or a file without a name in a folder; raises OSError where there is
        none to be had.
        """
        descriptor = _descriptor(name) if not folder else _nameless(folder)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, size)

    @property
    def allocated(self) -> int:
        """The bytes that were written so far, in whole pages."""
        return os.fstat(self.descriptor).st_blocks * 512

    def map(self) -> mmap.mmap:
        """Return the memory, to be read and written."""
        return mmap.mmap(self.descriptor, self.size)

    def empty(self) -> None:
        """Give the bytes back to the system, where it can take them; who maps them reads zeros."""
        with suppress(AttributeError, OSError):  # not Linux, or a file system without holes
            self.map().madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Give up the descriptor; mappings and the descriptors of others stay."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _descriptor(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    return _nameless(None)


def _nameless(folder: str | None) -> int:
    with tempfile.TemporaryFile(dir=folder) as file:  # its name is gone at once
        return os.dup(file.fileno())


@dataclass(slots=True, eq=False)
class Mapping:
    """A descriptor's memory as it lies in this process; never unmapped, for tensors view it."""

    view: memoryview
    """The memory's bytes."""
    address: int
    _keeps: object = field(repr=False)

    def gather(self, start: int, stop: int) -> bool:
        """Have huge pages for every one that overlaps the part; returns whether there are.

        Its content stays; other threads and processes may use it meanwhile.
        """
        lowest, highest = -(-self.address // HUGE), (self.address + len(self.view)) // HUGE
        first = max(lowest, (self.address + start) // HUGE)
        last = min(highest, -(-(self.address + stop) // HUGE))
        if sys.platform != "linux" or last <= first:
            return False
        for page in range(first, last):
            # What was never touched cannot be gathered.
            ctypes.c_char.from_address(page * HUGE).value  # noqa: B018 - reading is the effect
        libc = _libc()
        return libc.madvise(first * HUGE, (last - first) * HUGE, MADV_COLLAPSE) == 0

    def release(self, start: int, stop: int) -> None:
        """Give back the whole pages of a part, which is zeroed; where the system cannot, none."""
        first, last = -(-start // mmap.PAGESIZE), stop // mmap.PAGESIZE
        if sys.platform == "linux" and last > first:
            size = (last - first) * mmap.PAGESIZE
            _libc().madvise(self.address + first * mmap.PAGESIZE, size, mmap.MADV_REMOVE)

    def drop(self) -> None:
        """Map no page for now; what they hold stays, and they are mapped again when touched."""
        if sys.platform == "linux":
            _libc().madvise(self.address, len(self.view), mmap.MADV_DONTNEED)


def mapped(descriptor: int, *, writable: bool = True) -> Mapping:
    """Map all of a descriptor's memory; raises OSError, and ValueError where it is empty."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise ValueError("there is no memory behind the descriptor")
    if sys.platform == "linux":
        address = _mapped_at_huge_boundary(descriptor, size, writable)
        array = (ctypes.c_char * size).from_address(address)
        return Mapping(_view(array, writable), address, None)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
    found = mmap.mmap(descriptor, size, access=access)
    address = ctypes.addressof(ctypes.c_char.from_buffer(found))
    return Mapping(memoryview(found), address, found)


def _view(array: "ctypes.Array[ctypes.c_char]", writable: bool) -> memoryview:
    view = memoryview(array).cast("B")
    return view if writable else view.toreadonly()


def _mapped_at_huge_boundary(descriptor: int, size: int, writable: bool) -> int:
    """Return the address; it must be one that a huge page could have."""
    libc = _libc()
    around = libc.mmap(None, size + HUGE, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if around == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "no address space for shared memory")
    start = -(-around // HUGE) * HUGE
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    found = libc.mmap(start, size, protection, mmap.MAP_SHARED | MAP_FIXED, descriptor, 0)
    if found != start:
        raise OSError(ctypes.get_errno(), "shared memory cannot be mapped")
    return start


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
