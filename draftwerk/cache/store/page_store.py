"""Tier two as the engine uses it: records on disk, and the pages that they come from and go to."""

from dataclasses import dataclass
from hashlib import blake2b

from draftwerk.cache.store.block_bytes import BlockBytes
from draftwerk.cache.store.block_record import NAME_BYTES
from draftwerk.cache.store.disk import DiskStore


@dataclass(slots=True)
class PageStore:
    """Blocks of one server's pages, by name."""

    disk: DiskStore
    pages: BlockBytes
    kind: bytes = b""
    """Of what has the name of a block and is none: it has a record of its own."""

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return self.pages.layout.block_bytes

    def __contains__(self, name: bytes) -> bool:
        return self._record(name) in self.disk

    def load(self, name: bytes) -> bytearray | None:
        """Return a block's bytes, if its record is whole."""
        return self.disk.read(self._record(name), self.size)

    def keep(self, name: bytes, content: bytes) -> bool:
        """Write a block's record; returns whether it is there now."""
        return self.disk.write(self._record(name), content)

    def remove(self, name: bytes) -> None:
        """Remove a block's record."""
        self.disk.remove(self._record(name))

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
        return self.disk.newest(count)

    def counters(self) -> dict[str, float]:
        """Return what was counted since start, and what there is now."""
        stats = self.disk.stats
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
            "bytes": self.disk.total_bytes,
            "blocks": len(self.disk),
        }
