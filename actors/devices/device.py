"""The seam between the event loop and whatever runs a model."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.to_thread import run_sync

Work = TypeVar("Work", contravariant=True)
WorkResult = TypeVar("WorkResult", covariant=True)
W = TypeVar("W")
R = TypeVar("R")


class Worker(Protocol):
    """Runs ordinary CPU work off the event loop; what is abandoned may run on, unheard."""

    async def run(self, work: Callable[[], R]) -> R: ...


class ThreadWorker:
    """Runs work on any free thread."""

    async def run(self, work: Callable[[], R]) -> R:
        return await run_sync(work, abandon_on_cancel=True)


class DeviceLostError(Exception):
    """The model behind a device is gone; whatever it knew of sequences is gone with it."""


class Device(Protocol[Work, WorkResult]):
    """Runs one piece of work at a time; plain data in, plain data out."""

    @property
    def alive(self) -> bool:
        """Whether work can be done at once."""
        ...

    async def run(self, work: Work) -> WorkResult:
        """Do the work off the event loop. Raises DeviceLostError."""
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
