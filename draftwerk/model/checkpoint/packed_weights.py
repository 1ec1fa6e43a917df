"""Packed weights as a file in the cache folder, and in memory that all processes of a server map.

    checkpoint ── packed once ──> ~/.cache/draftwerk/packed-FINGERPRINT.bin
                                          │ read at a server's start
                                          v
    server's shared memory   | header | matrices in the order they are set | embedding |
                                          └── mapped by the target, its spare and its successors

The memory is the server's own and not the file: there it can have huge pages, without which a step
is slower. The fingerprint digests the checkpoint, the format and the kernels, so that a file is
either what packing would give, or another's. The checksums behind the weights are compared while
they are read: damaged ones are packed anew.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from draftwerk.machine.shared_memory import Mapping, mapped
from draftwerk.model.checkpoint.files.checksums import (
    checksums,
    is_whole,
    read_checked,
    table_bytes,
)
from draftwerk.model.checkpoint.files.content import content_name
from draftwerk.model.checkpoint.gguf_card import CARD, read_card

MAGIC = b"dwpacked"
HEADER = Struct("<8s32sQQ")
"""Magic, fingerprint, bytes that follow the header's page, and 1 once they are whole."""
HEADER_BYTES = 4096
FILES_MAX = 8
"""Packed files kept in the cache folder: those that were used last."""
DISK_SHARE = 0.5
"""What packed files may take of the room on the disk that they leave free or have themselves."""
KEPT_MIN = 2**24
"""Of fewer bytes packing is as quick as reading: no file is written."""
PREFIX, SUFFIX = "packed-", ".bin"

log = logging.getLogger("draftwerk")


class Header(NamedTuple):
    magic: bytes
    fingerprint: bytes
    size: int
    is_whole: int

    def encode(self) -> bytes:
        return HEADER.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "Header":
        """Return a header; one that is cut short is like no other."""
        return cls(*HEADER.unpack(data[: HEADER.size].ljust(HEADER.size, b"\0")))


class WeightStore:
    """One model's packed weights, in memory handed over by the server."""

    def __init__(
        self, descriptor: int, fingerprint: bytes, cache: Path, keeps: bool = True
    ) -> None:
        """Without `keeps` no file is written, for what is as quickly packed as read."""
        self._keeps = keeps
        self._descriptor = descriptor
        self._fingerprint = fingerprint
        self._cache = cache
        self._mapping: Mapping | None = None
        self.is_packed = self._in_memory() > 0 or self._read()
        """Whether the weights are there, so that no matrix needs to be read."""

    @property
    def path(self) -> Path:
        return self._cache / f"{PREFIX}{self._fingerprint.hex()}{SUFFIX}"

    def open(self, size: int) -> int:
        """Map `size` bytes of weights and return their address; see `is_packed`.

        Raises ValueError if what was there is of another size: it is gone then.
        """
        if self._in_memory() == size:
            mapping = self._mapping or mapped(self._descriptor, writable=False)
        else:
            mapping = self._made(size)
            if self.is_packed:
                self.path.unlink(missing_ok=True)
                raise ValueError(f"{self.path} does not hold this model's weights")
        self._mapping = mapping
        return mapping.address + HEADER_BYTES

    def _made(self, size: int) -> Mapping:
        """Return zeroed memory: a process may have left it half packed."""
        os.ftruncate(self._descriptor, 0)
        os.ftruncate(self._descriptor, HEADER_BYTES + size)
        mapping = mapped(self._descriptor)
        mapping.gather(0, HEADER_BYTES + size)
        return mapping

    def finish(self) -> None:
        """Keep what was packed, for the server's other processes and for other starts."""
        if self.is_packed or self._mapping is None:
            return
        self._mark_whole()
        self.is_packed = True
        if not self._keeps or len(self._mapping.view) < KEPT_MIN:
            return
        with suppress(OSError):  # without a file the next start packs again
            self._write()

    def _in_memory(self) -> int:
        """Return the bytes of weights that the memory holds; 0 if they are not whole."""
        header = Header.decode(os.pread(self._descriptor, HEADER.size, 0))
        size = os.fstat(self._descriptor).st_size - HEADER_BYTES
        return size if header == self._header(size) else 0

    def _header(self, size: int) -> Header:
        return Header(MAGIC, self._fingerprint, size, 1)

    def _read(self) -> bool:
        """Fill the memory from the file; returns whether it holds the weights, and all of them."""
        try:
            with self.path.open("rb", buffering=0) as file:
                size = _size(file.fileno(), self._fingerprint)
                mapping = self._made(size) if size else None
                is_read = mapping is not None and read_checked(
                    file.fileno(), HEADER_BYTES, mapping.view[HEADER_BYTES:]
                )
            os.utime(self.path)  # used just now
        except FileNotFoundError:
            return False
        except OSError as error:
            log.warning("%s cannot be read, the weights are packed anew: %s", self.path, error)
            return False
        if not is_read:
            log.warning("%s is damaged: the weights are packed anew", self.path)
            return False
        self._mapping = mapping
        self._mark_whole()
        return True

    def _mark_whole(self) -> None:
        assert self._mapping is not None
        size = len(self._mapping.view) - HEADER_BYTES
        self._mapping.view[: HEADER.size] = self._header(size).encode()

    def _write(self) -> None:
        """Write a file of another name and rename it: a reader sees all of it or nothing."""
        assert self._mapping is not None
        self._cache.mkdir(parents=True, exist_ok=True)
        if not _make_room(self._cache, len(self._mapping.view), bytes_max(self._cache)):
            log.info("the weights are packed at each start: too little room on the disk")
            return
        working = self.path.with_suffix(f".{os.getpid()}")
        try:
            with working.open("wb") as file:
                file.write(self._mapping.view)
                file.write(checksums(self._mapping.view[HEADER_BYTES:]))
                file.flush()
                os.fsync(file.fileno())
            working.replace(self.path)
        finally:
            working.unlink(missing_ok=True)


def _size(descriptor: int, fingerprint: bytes | None = None) -> int:
    """Return the bytes of weights in a file; 0 if it is cut, or not of this fingerprint."""
    header = Header.decode(os.pread(descriptor, HEADER.size, 0))
    wanted = Header(MAGIC, fingerprint or header.fingerprint, header.size, 1)
    held = os.fstat(descriptor).st_size
    fits = held == HEADER_BYTES + header.size + table_bytes(header.size)
    return header.size if header == wanted and fits else 0


def damaged_files(cache: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each packed file, read whole, and whether it is damaged."""
    for path in sorted(cache.glob(f"{PREFIX}*{SUFFIX}")):
        with suppress(OSError), path.open("rb", buffering=0) as file:
            size = _size(file.fileno())
            yield path, not size or not is_whole(file.fileno(), HEADER_BYTES, size)


def weights_fingerprint(directory: Path, cache: Path, words: Iterable[str]) -> bytes | None:
    """Return a digest of a checkpoint and of what else decides the bytes in question.

    None where the files cannot be digested: then nothing is to be kept.
    """
    digest = hashlib.sha256()
    try:
        card = read_card(directory)
        files = directory.glob("*.safetensors") if card is None else map(Path, card.paths)
        for path in sorted([*files, directory / "config.json"]):
            digest.update(f"{path.name} {content_name(path, cache)}\n".encode())
    except OSError:
        return None
    for word in words:
        digest.update(f"{word}\n".encode())
    return digest.digest()


def identity_fingerprint(directory: Path, words: Iterable[str]) -> bytes:
    """Return a digest of a GGUF's identity, for what ends with the server: no file is hashed."""
    digest = hashlib.sha256((directory / CARD).read_bytes())
    for word in words:
        digest.update(f"{word}\n".encode())
    return digest.digest()


def bytes_max(cache: Path) -> int:
    """Return what packed files may take together in a folder."""
    held = sum(path.stat().st_size for path in cache.glob(f"{PREFIX}*"))
    return int(DISK_SHARE * (shutil.disk_usage(cache).free + held))


def _make_room(cache: Path, size: int, size_max: int) -> bool:
    """Remove packed files until one more fits: what was used longest ago, what was left half made.

    Returns whether it fits; none is removed for one that cannot. Servers have theirs in memory.
    """
    if size > size_max:
        return False
    found = sorted(
        ((path.stat().st_mtime, path, path.stat().st_size) for path in cache.glob(f"{PREFIX}*")),
        reverse=True,
    )
    for number, (_, path, held) in enumerate(found, 2):
        size += held
        if number > FILES_MAX or size > size_max:
            path.unlink(missing_ok=True)
    return True
