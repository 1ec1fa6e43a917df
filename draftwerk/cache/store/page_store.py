"""Tier two as the engine uses it: records elsewhere, and the pages they come from and go to."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from draftwerk.cache.store.block_bytes import BlockBytes
from draftwerk.cache.store.block_record import NAME_BYTES
from draftwerk.cache.store.disk import StoreStats


class Records(Protocol):
    """Blocks by name, outside the server's pages: on disk, or at other servers."""

    stats: StoreStats

    @property
    def keeps(self) -> bool: ...

    def __contains__(self, name: bytes, /) -> bool: ...

    def __len__(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...

    def read_all(self, names: Sequence[bytes], size: int) -> list[bytearray | None]: ...

    def write(self, name: bytes, data: bytes) -> bool: ...

    def remove(self, name: bytes) -> None: ...

    def newest(self, count: int) -> list[bytes]: ...


@dataclass(slots=True)
class PageStore:
    """Blocks of one server's pages, by name."""

    records: Records
    pages: BlockBytes
    kind: bytes = b""
    """The kind of what has the name of a block and is none: it has a record of its own."""

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return self.pages.layout.block_bytes

    @property
    def keeps(self) -> bool:
        """Whether what the pool lets go of is written."""
        return self.records.keeps

    def __contains__(self, name: bytes) -> bool:
        return self._record(name) in self.records

    def load(self, names: Sequence[bytes]) -> list[bytearray | None]:
        """Return blocks' bytes, None where a record is not whole."""
        return self.records.read_all([*map(self._record, names)], self.size)

    def keep(self, name: bytes, content: bytes) -> bool:
        """Write a block's record; returns whether it is there now."""
        return self.records.write(self._record(name), content)

    def remove(self, name: bytes) -> None:
        """Remove a block's record."""
        self.records.remove(self._record(name))

    def _record(self, name: bytes) -> bytes:
        """Return the name of a block's record."""
        if not self.kind:
            return name
        return blake2b(name, digest_size=NAME_BYTES, person=self.kind).digest()

    def copy(self, block: int) -> bytes:
        """Return a block's bytes as they are in the pages."""
        return self.pages.copy(block)

    def put(self, block: int, content: bytearray) -> None:
        """Write a block's bytes into the pages."""
        self.pages.put(block, content)

    def newest(self, count: int) -> list[bytes]:
        """Return the names of the blocks that were used last, newest first."""
        return self.records.newest(count)

    def counters(self) -> dict[str, float]:
        """Return what was counted since start, and what there is now."""
        stats = self.records.stats
        return {
            "hits": stats.hits,
            "misses": stats.misses,
            "refused": stats.refused,
            "writes": stats.writes,
            "failed_writes": stats.failed_writes,
            "evictions": stats.evictions,
            "read_bytes": stats.read_bytes,
            "written_bytes": stats.written_bytes,
            "load_seconds": stats.load_ms / 1e3,
            "write_seconds": stats.write_ms / 1e3,
            "bytes": self.records.total_bytes,
            "blocks": len(self.records),
        }
