"""A bounded folder of records, one file a block; used from any thread, and by several servers.

    DIR/key                             what names are keyed with; without it nothing is found
    DIR/FINGERPRINT/ab/abcd….kv         a record

Every fault is a miss: a file that is gone, cut, altered or another's is refused, and removed. A
write goes to a file of another name first; a process that is killed leaves no half record.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EPERM
from itertools import islice
from pathlib import Path
from secrets import token_bytes
from stat import S_ISREG
from threading import Lock
from time import monotonic, perf_counter, time

from draftwerk.cache.store.block_record import HEADER_BYTES, RecordKey
from draftwerk.cache.store.record_file import WORKING, read_record, write_record

KEY_BYTES = 32
SUFFIX = ".kv"
PAUSE_S = 10.0
"""After a write that failed: a full disk is not tried at every block."""
RECOUNT = 256
"""Writes until the folder is counted again: other servers may write to it."""
STALE_S = 3600.0
"""A half-written file this old is nobody's."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class StoreStats:
    """Counters since start."""

    hits: int = 0
    """Blocks loaded."""
    misses: int = 0
    """Blocks that were to be loaded and could not be."""
    refused: int = 0
    """Records that were cut, altered or another's."""
    writes: int = 0
    failed_writes: int = 0
    evictions: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    load_ms: float = 0.0
    write_ms: float = 0.0


@dataclass(slots=True)
class DiskStore:
    """Records under one fingerprint, found by their blocks' names."""

    folder: Path
    fingerprint: bytes
    block_bytes: int
    """The bytes of a block in all planes."""
    size_max: int
    """Bytes of all records in the folder, those of other fingerprints included."""
    stats: StoreStats = field(default_factory=StoreStats)
    state_bytes: int = 0
    """The bytes of a recurrent state, which is kept like a block; 0 where none is."""
    clock: Callable[[], float] = monotonic
    _names: set[bytes] = field(default_factory=set[bytes])
    """The names of the records that are likely there."""
    _sizes: OrderedDict[Path, int] = field(default_factory=OrderedDict[Path, int])
    """Every record of the folder, least recently used first."""
    _total: int = 0
    _paused_until: float = float("-inf")
    _is_failing: bool = False
    """Whether the latest write failed, which the log has."""
    _lock: Lock = field(default_factory=Lock)

    def __contains__(self, name: bytes) -> bool:
        """Whether the block's record was there when it was last seen.

        Of one that is not known yet the file is looked for: another server may have written it. A
        prompt's blocks are asked for up to the first that is missing, so that costs one look each.
        """
        return name in self._names or self._finds(name)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def keeps(self) -> bool:
        """Whether it takes blocks."""
        return True

    @property
    def total_bytes(self) -> int:
        """Bytes of all records, as far as this server knows."""
        return self._total

    def recount(self) -> None:
        """Look at what is in the folder, and remove what is over the bound."""
        records: list[tuple[float, Path, int]] = []
        for path in self._files():
            with suppress(OSError):  # another server has removed it
                status = path.stat()
                records.append((status.st_mtime, path, status.st_size))
        with self._lock:
            self._sizes = OrderedDict((path, size) for _, path, size in sorted(records))
            self._total = sum(self._sizes.values())
            folder = self._own_folder
            self._names = {
                name for path in self._sizes if folder in path.parents and (name := _name_of(path))
            }
            self._evict()

    def newest(self, count: int) -> list[bytes]:
        """Return the blocks whose records were written or read last, newest first."""
        with self._lock:
            folder, size = self._own_folder, self.block_bytes + HEADER_BYTES
            newest_first = reversed(self._sizes.items())
            paths = (path for path, held in newest_first if held == size and folder in path.parents)
            return [name for path in islice(paths, count) if (name := _name_of(path))]

    def read_all(self, names: Sequence[bytes], size: int) -> list[bytearray | None]:
        """Return what `read` does of each name."""
        return [self.read(name, size) for name in names]

    def read(self, name: bytes, size: int = 0) -> bytearray | None:
        """Return a block's bytes, or `size` of a state, if all its record is there and right."""
        begun, path = perf_counter(), self._path(name)
        data = bytearray(size or self.block_bytes)
        state = read_record(path, RecordKey(self.fingerprint, name), data)
        with self._lock:
            if state is None:
                self.stats.hits += 1
                self.stats.load_ms += 1e3 * (perf_counter() - begun)
                self.stats.read_bytes += len(data)
                if path in self._sizes:
                    self._sizes.move_to_end(path)
            else:
                self.stats.misses += 1
                self.stats.refused += state == "refused"
                self._forget(path)
        with suppress(OSError):
            if state is None:
                os.utime(path)
            elif state == "refused":
                path.unlink(missing_ok=True)
        return data if state is None else None

    def write(self, name: bytes, data: bytes) -> bool:
        """Keep a block's bytes; returns whether they are kept now."""
        if len(data) + HEADER_BYTES > self.size_max or self.clock() < self._paused_until:
            return False
        begun, path = perf_counter(), self._path(name)
        try:
            write_record(path, RecordKey(self.fingerprint, name), data)
        except OSError as error:
            if not self._is_failing:
                log.warning("blocks cannot be kept in %s: %s", self.folder, error.strerror or error)
            with self._lock:
                self._is_failing = True
                self.stats.failed_writes += 1
                self._paused_until = self.clock() + PAUSE_S
            return False
        if self._is_failing:
            self._is_failing = False
            log.warning("blocks are kept in %s again", self.folder)
        with self._lock:
            self.stats.writes += 1
            self.stats.written_bytes += len(data)
            self.stats.write_ms += 1e3 * (perf_counter() - begun)
            self._forget(path)
            self._sizes[path] = len(data) + HEADER_BYTES
            self._total += len(data) + HEADER_BYTES
            self._names.add(name)
            self._evict()
        if self.stats.writes % RECOUNT == 0:
            self.recount()
        return True

    def remove(self, name: bytes) -> None:
        """Remove a block's record, if there is one."""
        path = self._path(name)
        with self._lock:
            self._forget(path)
        with suppress(OSError):
            path.unlink(missing_ok=True)

    @property
    def _own_folder(self) -> Path:
        return self.folder / self.fingerprint.hex()

    def _path(self, name: bytes) -> Path:
        word = name.hex()
        return self._own_folder / word[:2] / (word + SUFFIX)

    def _files(self) -> Iterator[Path]:
        """Yield every record of the folder, of any fingerprint."""
        for path in self.folder.glob(f"*/??/*{WORKING}"):
            with suppress(OSError):
                if _age_s(path) > STALE_S:
                    path.unlink(missing_ok=True)
        yield from self.folder.glob(f"*/??/*{SUFFIX}")

    def _finds(self, name: bytes) -> bool:
        """Return whether another server has written a block's record, and note it."""
        path = self._path(name)
        try:
            status = path.stat()
        except OSError:
            return False
        size = status.st_size
        data_size = size - HEADER_BYTES
        if not S_ISREG(status.st_mode) or data_size not in (self.block_bytes, self.state_bytes):
            return False
        with self._lock:
            if path not in self._sizes:
                self._sizes[path] = size
                self._total += size
            self._names.add(name)
        return True

    def _evict(self) -> None:
        """Remove the records used least recently until the rest are within bounds."""
        while self._sizes and self._total > self.size_max:
            path = next(iter(self._sizes))
            self._forget(path)
            self.stats.evictions += 1
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _forget(self, path: Path) -> None:
        self._total -= self._sizes.pop(path, 0)
        name = _name_of(path)
        if name and self._own_folder in path.parents:
            self._names.discard(name)


def _name_of(path: Path) -> bytes:
    """Return a record's block's name; empty for a file of another kind."""
    try:
        return bytes.fromhex(path.stem)
    except ValueError:
        return b""


def _age_s(path: Path) -> float:
    return time() - path.stat().st_mtime


def name_key(folder: Path) -> bytes:
    """Return what names in the folder are keyed with, made at its first use, for its owner alone.

    Raises OSError where there is none and none can be made, or where others may write.
    """
    path = folder / "key"
    with suppress(FileNotFoundError):
        about = folder.stat()
        if about.st_mode & 0o002 or about.st_uid != os.geteuid():
            raise PermissionError(EPERM, "it is another user's, or others may write to it")
    with suppress(FileNotFoundError):
        found = path.read_bytes()
        if len(found) == KEY_BYTES:
            return found
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    working = folder / f"key-{os.getpid()}-{token_bytes(4).hex()}"
    descriptor = os.open(working, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # another server was first
            os.link(working, path)
    finally:
        working.unlink()
    return path.read_bytes()
