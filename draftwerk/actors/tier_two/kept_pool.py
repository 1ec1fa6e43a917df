"""A pool whose content is kept in a store as well: blocks, or snapshots of recurrent states."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from draftwerk.cache.blocks import BlockPool


class BlockStore(Protocol):
    """Content by name, outside the pages; `load` and `keep` are slow and may run on any thread."""

    @property
    def size(self) -> int:
        """Bytes of what has one name."""
        ...

    def __contains__(self, name: bytes, /) -> bool: ...

    @property
    def keeps(self) -> bool:
        """Whether it takes what the pool lets go of."""
        ...

    def load(self, names: Sequence[bytes]) -> Sequence[Any | None]:
        """Return the content of each name, None where the store has not all of it."""
        ...

    def keep(self, name: bytes, content: Any) -> bool:
        """Keep a block's content; returns whether it is kept."""
        ...

    def remove(self, name: bytes) -> None:
        """Give up a block's content, quickly."""
        ...

    def copy(self, block: int) -> Any:
        """Return the content of a block of the pages, as it is now."""
        ...

    def put(self, block: int, content: Any) -> None:
        """Write a block of the pages, which no round under way may."""
        ...

    def newest(self, count: int) -> list[bytes]:
        """Return the names of the blocks that were used last, newest first."""
        ...

    def counters(self) -> dict[str, float]:
        """Return what was counted since start, and what there is now."""
        ...


@dataclass(slots=True, eq=False)
class KeptPool:
    """One pool, and all that is known of its content elsewhere."""

    pool: BlockPool
    store: BlockStore
    passing: AbstractSet[bytes] = frozenset()
    """Names that others will soon replace: not worth keeping."""
    copies: OrderedDict[bytes, Any] = field(default_factory=OrderedDict[bytes, Any])
    """Content that is gone from the pool and not kept yet."""
    coming: dict[bytes, anyio.Event] = field(default_factory=dict[bytes, anyio.Event])
    """Events of names that are being loaded."""

    def holds(self, name: bytes) -> bool:
        """Return whether the pool has it."""
        return self.pool.find(name) is not None

    def keeps(self, name: bytes) -> bool:
        """Return whether it can be had from elsewhere."""
        return name in self.copies or name in self.coming or name in self.store

    def load(self, names: Sequence[bytes]) -> dict[bytes, Any]:
        """Return the content of names, as far as all of it is kept; on any thread."""
        found = {name: self.copies.get(name) for name in names}
        missing = [name for name in names if found[name] is None]
        found |= zip(missing, self.store.load(missing), strict=True)
        return {name: content for name, content in found.items() if content is not None}

    def take_in(self, found: Iterable[tuple[bytes, Any]], avoid: AbstractSet[int]) -> int:
        """Write content into blocks of the pool, none of `avoid`; returns how many there were."""
        taken = 0
        for name, content in found:
            block = self.pool.adopt(name, avoid)
            if block is not None:
                self.store.put(block, content)
                taken += 1
        return taken
