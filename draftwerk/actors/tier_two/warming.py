"""Loads blocks before anybody asks for them, as far as the pool is empty.

They are those that a store had used last when the server began, and those of a server that leaves.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio

from draftwerk.actors.tier_two.intake import Intake, KeptName

WARM_MAX = 512
"""Blocks loaded at the start."""


@dataclass(slots=True)
class Warming:
    """Orders to load, one after the other."""

    intake: Intake
    _orders: deque[tuple[list[bytes], anyio.Event]] = field(
        default_factory=deque[tuple[list[bytes], anyio.Event]]
    )
    _more: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.order(self.intake.blocks.store.newest(WARM_MAX))

    def order(self, names: Iterable[bytes]) -> anyio.Event:
        """Have blocks loaded; returns what is set once no more of them will come."""
        loaded = anyio.Event()
        self._orders.append(([*names], loaded))
        self._more.set()
        return loaded

    async def run(self) -> None:
        """Load for one order after the other."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._orders:
                names, loaded = self._orders.popleft()
                await self.intake.fetch_in_parts(self._missing(names))
                loaded.set()

    def _missing(self, names: list[bytes]) -> list[KeptName]:
        """Return what is not here, and no more of it than leaves half of the empty blocks."""
        blocks = self.intake.blocks
        missing = [KeptName(blocks, name) for name in names if not blocks.holds(name)]
        return missing[: blocks.pool.free // 2]
