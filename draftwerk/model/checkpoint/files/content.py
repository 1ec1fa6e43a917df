"""Names for files by all of their content, each file hashed once for as long as it stays itself.

Hashing 5 GB takes some ten seconds, so a file's status at the time of hashing is kept in the cache
folder. Every write changes `ctime`, which no program can set; a file written at the
moment it was hashed could be written again within the clock's tick, and is not kept.
"""

import os
import time
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.unsupported import Refused

DIGITS = 16
"""The digits of the hexadecimal hash: enough that no two files meet by accident."""
SETTLED_NS = 2 * 10**9
"""Coarser than any file system's clock."""


class Hashed(msgspec.Struct, frozen=True, array_like=True):
    """A file's status when it was hashed, and its name."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    name: str

    @classmethod
    def of(cls, path: Path, name: str = "") -> "Hashed":
        """Return a file's status of this moment."""
        status = path.stat()
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            name,
        )

    def named(self, name: str) -> "Hashed":
        return msgspec.structs.replace(self, name=name)


def content_name(path: Path, memory: Path, *, reads: bool = False) -> str:
    """Return a name that only a file of the same bytes has; `memory` is the folder of kept hashes.

    With `reads` a kept hash is not trusted: a disk may lose what was written. Raises Refused for a
    file that is written meanwhile, OSError for one that cannot be read.
    """
    before = Hashed.of(path)
    note = memory / f".hashed-{sha256(os.fsencode(path.resolve())).hexdigest()[:DIGITS]}"
    remembered = _read(note)
    if not reads and remembered is not None and remembered.named("") == before:
        return remembered.name
    name = hashed_content(path)
    if Hashed.of(path) != before:
        raise Refused(f"{path}: it is being written; try again when it is whole")
    if time.time_ns() - before.ctime_ns > SETTLED_NS:
        _write(note, before.named(name))
    return name


def hashed_content(path: Path) -> str:
    """Return the name of a file's content, which is read whole."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()[:DIGITS]


def _read(note: Path) -> Hashed | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=Hashed)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(note: Path, hashed: Hashed) -> None:
    """Keep the hashes if the disk has space; without them another start hashes again."""
    working = note.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        working.write_bytes(msgspec.json.encode(hashed))
        working.replace(note)
