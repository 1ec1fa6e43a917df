"""Packed weights in memory that all processes of a server map.

    checkpoint ── packed once ──> server's shared memory   | header | matrices | embedding |
                                     └── mapped by the target, its spare and its successors

The memory is the server's own: there it can have huge pages, without which a step is slower.
Packing is about as quick as reading, so nothing of it is kept on disk. Where a model is larger
than the memory, a file without a name takes its place, if a folder is given for it: the system
reads what a step touches, and drops what it has not used for longest.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import msgspec
from msgspec import structs

from draftwerk.machine.shared_memory import Mapping, mapped
from draftwerk.model.checkpoint.files.content import Hashed, content_name
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.unsupported import Refused

MAGIC = b"dwpacked"
HEADER = Struct("<8s32sQQ")
"""Magic, fingerprint, bytes that follow the header's page, and 1 once they are whole."""
HEADER_BYTES = 4096
CHANGED = (
    "the model's files or this program were changed while the model was served: start the server "
    "again"
)


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
    """One model's packed weights, in memory handed over by the server, or in a file in `folder`."""

    def __init__(self, descriptor: int, fingerprint: bytes, folder: str = "") -> None:
        self._descriptor = descriptor
        self._folder = folder
        self._fingerprint = fingerprint
        self._mapping: Mapping | None = None
        self.is_packed = self._in_memory() > 0
        """Whether the weights are there, so that no matrix needs to be read."""

    def open(self, size: int) -> int:
        """Map `size` bytes of weights and return their address; see `is_packed`.

        Raises ValueError if what is there is of another size, Refused where the disk is full.
        """
        if not self.is_packed:
            self._mapping = self._made(size)
        elif self._in_memory() == size:
            self._mapping = mapped(self._descriptor, writable=False)
        else:
            raise ValueError("the packed weights in memory are not this model's")
        return self._mapping.address + HEADER_BYTES

    def release(self, start: int, stop: int) -> None:
        """Give back a part that packing has left empty, in bytes behind the address."""
        if not self.is_packed and self._mapping is not None:
            self._mapping.release(HEADER_BYTES + start, HEADER_BYTES + stop)

    def finish(self) -> None:
        """Say to the server's other processes that all is packed."""
        if self.is_packed or self._mapping is None:
            return
        if self._folder:
            os.fsync(self._descriptor)  # of what is not written yet no page can be dropped
        size = len(self._mapping.view) - HEADER_BYTES
        self._mapping.view[: HEADER.size] = self._header(size).encode()
        self.is_packed = True

    def _made(self, size: int) -> Mapping:
        """Return zeroed memory: a process may have left it half packed."""
        os.ftruncate(self._descriptor, 0)
        os.ftruncate(self._descriptor, HEADER_BYTES + size)
        if self._folder:
            self._reserve(HEADER_BYTES + size)
            return mapped(self._descriptor)
        mapping = mapped(self._descriptor)
        mapping.gather(0, HEADER_BYTES + size)
        return mapping

    def _reserve(self, size: int) -> None:
        """Have room on the disk: without it, writing to the mapping would end the process."""
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise Refused(
                f"weight_store: {self._folder} has no room for {size / 1e9:.1f} GB of packed "
                f"weights: {error.strerror}"
            ) from error

    def drop(self) -> None:
        """Have no page of the file in memory."""
        assert self._mapping is not None
        self._mapping.drop()
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    @property
    def size(self) -> int:
        """The bytes that are mapped; 0 before `open`."""
        return 0 if self._mapping is None else len(self._mapping.view)

    def _in_memory(self) -> int:
        """Return the bytes of weights that the memory holds; 0 if they are not whole.

        Raises Refused for those of other files: another process may compute with them.
        """
        header = Header.decode(os.pread(self._descriptor, HEADER.size, 0))
        size = os.fstat(self._descriptor).st_size - HEADER_BYTES
        if header._replace(fingerprint=self._fingerprint) != self._header(size):
            return 0
        if header.fingerprint != self._fingerprint:
            raise Refused(CHANGED)
        return size

    def _header(self, size: int) -> Header:
        return Header(MAGIC, self._fingerprint, size, 1)


def weights_fingerprint(directory: Path, cache: Path, words: Iterable[str]) -> bytes | None:
    """Return a digest of a checkpoint's bytes and of what else decides the bytes in question.

    None where the files cannot be digested: then nothing is to be kept.
    """
    digest = hashlib.sha256()
    try:
        for path in _files(directory):
            # Of a GGUF all is in the file, whatever that is called.
            name = path.name if path.parent == directory else ""
            digest.update(f"{name} {content_name(path, cache)}\n".encode())
    except OSError:
        return None
    return _with_words(digest, words)


def identity_fingerprint(directory: Path, words: Iterable[str]) -> bytes:
    """Return a digest of the files' identity, for what ends with the server: none is hashed.

    A link that is made to a file, and what else writes nothing into it, leaves it as it is.
    """
    digest = hashlib.sha256()
    if (card := read_card(directory)) is not None:
        statuses = tuple(map(_of_content, card.statuses))
        digest.update(msgspec.json.encode(structs.replace(card, statuses=statuses)))
    else:
        for path in _files(directory):
            digest.update(f"{_of_content(Hashed.of(path))}\n".encode())
    return _with_words(digest, words)


def _of_content(status: Hashed) -> Hashed:
    """Return a file's status without what changes when nothing is written."""
    return structs.replace(status, ctime_ns=0)


def weight_files(directory: Path) -> list[Path]:
    """Return the files of a checkpoint's weights, in the order of their names."""
    card = read_card(directory)
    return sorted(directory.glob("*.safetensors") if card is None else map(Path, card.paths))


def _files(directory: Path) -> list[Path]:
    return sorted([*weight_files(directory), directory / "config.json"])


def _with_words(digest: "hashlib._Hash", words: Iterable[str]) -> bytes:
    for word in words:
        digest.update(f"{word}\n".encode())
    return digest.digest()
