"""The plainest eviction order, which the server's own is measured against."""

from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from draftwerk.cache.eviction.replacement import NONE, Origin


class LeastRecentlyUsed:
    """Evicts the block that lost its last holder first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def add(self, block: int, name: bytes, origin: Origin) -> None:
        self._blocks[block] = None

    def remove(self, block: int) -> None:
        del self._blocks[block]

    def reused(self, name: bytes, name_space: str) -> None:
        """Nothing is counted."""

    def forget(self, name: bytes) -> None:
        """Nothing is known."""

    def evict(self, avoid: AbstractSet[int] = NONE) -> int | None:
        block = next((each for each in self._blocks if each not in avoid), None)
        if block is not None:
            del self._blocks[block]
        return block

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: object, /) -> bool:
        return block in self._blocks

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)

    def check(self) -> None:
        """There is nothing to contradict."""
