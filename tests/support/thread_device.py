"""A device that runs its model on a thread of this process."""

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
from anyio.to_thread import run_sync

W = TypeVar("W")
R = TypeVar("R")


class ThreadDevice(Generic[W, R]):
    """Runs the work on a thread. A step that has begun is never abandoned, even by a cancel."""

    def __init__(self, step: Callable[[W], R]) -> None:
        self._step = step
        self._one_at_a_time = anyio.CapacityLimiter(1)

    @property
    def alive(self) -> bool:
        return True

    async def run(self, work: W) -> R:
        return await run_sync(self._step, work, limiter=self._one_at_a_time)

    async def revive(self) -> None:
        """Do nothing: a thread is never lost."""

    async def watch(self) -> None:
        """Do nothing, for the same reason."""

    def check(self) -> None:
        """Do nothing: nothing is kept beside it."""
