"""The seam between the event loop and whatever runs a model."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

Work = TypeVar("Work", contravariant=True)
WorkResult = TypeVar("WorkResult", covariant=True)
R = TypeVar("R")
WORK_AT_ONCE = 16
"""Pieces of work of one engine: the texts that are read at once, and blocks of the store."""


class Worker(Protocol):
    """Runs ordinary CPU work off the event loop; what is abandoned may run on, unheard."""

    async def run(self, work: Callable[[], R]) -> R: ...


class ThreadWorker:
    """Runs work on threads of its own: nothing waits behind what is slow elsewhere."""

    def __init__(self, at_once: int = WORK_AT_ONCE) -> None:
        self._limiter = CapacityLimiter(at_once)

    async def run(self, work: Callable[[], R]) -> R:
        return await run_sync(work, abandon_on_cancel=True, limiter=self._limiter)


class DeviceLostError(Exception):
    """The model behind a device is gone; whatever it knew of sequences is gone with it."""


class Device(Protocol[Work, WorkResult]):
    """Computes pieces of work in order, also the next one while one is under way; plain data in,
    plain data out."""

    @property
    def alive(self) -> bool:
        """Whether work can be done at once."""
        ...

    async def send(self, work: Work) -> None:
        """Hand over a piece of work; a loss shows when it is received."""
        ...

    async def receive(self) -> WorkResult:
        """Return what the oldest piece of work came to. Raises DeviceLostError."""
        ...

    async def settle(self) -> None:
        """Wait until nothing that was sent is computed any more."""
        ...

    async def revive(self) -> None:
        """Make the device ready, without any sequence on it. Raises DeviceLostError."""
        ...

    async def watch(self) -> None:
        """Look after a device without work; raises DeviceLostError once it is gone."""
        ...

    def check(self) -> None:
        """Assert that what is kept beside the model is sound."""
        ...
