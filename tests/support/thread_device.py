"""Devices of tests, which begin a piece of work once its answer is wanted."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from anyio.to_thread import run_sync

W = TypeVar("W")
R = TypeVar("R")


@dataclass(eq=False)
class OneAtATime(ABC, Generic[W, R]):
    """A device without a process; it is never lost but by what `run` raises."""

    _sent: deque[W] = field(default_factory=deque[W], init=False)
    alive: bool = field(default=True, init=False)

    @abstractmethod
    async def run(self, work: W) -> R:
        """Do a piece of work."""

    async def send(self, work: W) -> None:
        """Keep the work until its turn."""
        self._sent.append(work)

    async def receive(self) -> R:
        return await self.run(self._sent.popleft())

    async def settle(self) -> None:
        """Do nothing: what was cancelled has ended."""

    async def revive(self) -> None:
        """Do nothing: it breaks only at work, and the next one is made new."""

    async def watch(self) -> None:
        """Do nothing, for the same reason."""

    def check(self) -> None:
        """Do nothing: nothing is kept beside it."""


@dataclass(eq=False)
class ThreadDevice(OneAtATime[W, R]):
    """Runs the work on a thread. A step that has begun is never abandoned, even by a cancel."""

    step: Callable[[W], R]
    _limiter: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(1), init=False
    )

    async def run(self, work: W) -> R:
        return await run_sync(self.step, work, limiter=self._limiter)
