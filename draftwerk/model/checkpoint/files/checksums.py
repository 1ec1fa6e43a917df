"""Checksums of each chunk of large files, computed by several threads while they read.

A chunk's is the CRC-32 of the sums of its pages' 64-bit words: a sum takes a sixth of a CRC's
time. It differs for any changed word, and for pages that are lost, swapped or of another file.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import numpy as np

from draftwerk.machine.threads import usable_cpus

CHUNK = 2**22
"""Bytes: they are in the processor's cache while they are summed."""
THREADS_MAX = 8
PAGE, WORD, WIDTH = 4096, 8, 4


def checksums(view: memoryview) -> bytes:
    """Return the checksum of each chunk, and one of all of these."""
    return _encoded(_of_chunks(len(view), lambda start, stop: _checksum(view[start:stop])))


def table_bytes(size: int) -> int:
    """Return how long the checksums of so many bytes are."""
    return WIDTH * (-(-size // CHUNK) + 1)


def read_checked(descriptor: int, offset: int, view: memoryview) -> bool:
    """Fill `view` with the file's bytes from `offset`; returns whether the checksums behind agree.

    Raises OSError where the file cannot be read.
    """

    def read(start: int, stop: int) -> int:
        part, at = view[start:stop], offset + start
        while part and (count := os.preadv(descriptor, [part], at)):
            part, at = part[count:], at + count
        return -1 if part else _checksum(view[start:stop])

    return _agrees(descriptor, offset + len(view), _of_chunks(len(view), read))


def is_whole(descriptor: int, offset: int, size: int) -> bool:
    """Return whether `size` bytes of a file from `offset` agree with the checksums behind them."""

    def read(start: int, stop: int) -> int:
        return _checksum(memoryview(os.pread(descriptor, stop - start, offset + start)))

    return _agrees(descriptor, offset + size, _of_chunks(size, read))


def _checksum(chunk: memoryview) -> int:
    whole = len(chunk) // PAGE * PAGE
    words = np.frombuffer(chunk[:whole], np.uint64).reshape(-1, PAGE // WORD)
    sums = np.add.reduce(words, axis=1)
    return crc32(chunk[whole:], crc32(sums))


def _agrees(descriptor: int, offset: int, found: list[int]) -> bool:
    expected = os.pread(descriptor, WIDTH * (len(found) + 1), offset)
    return -1 not in found and _encoded(found) == expected


def _of_chunks(size: int, one: Callable[[int, int], int]) -> list[int]:
    with ThreadPoolExecutor(min(THREADS_MAX, usable_cpus())) as threads:
        return list(threads.map(lambda part: one(*part), _parts(size)))


def _parts(size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def _encoded(found: list[int]) -> bytes:
    table = np.array(found, "<u4").tobytes()
    return table + crc32(table).to_bytes(WIDTH, "little")
