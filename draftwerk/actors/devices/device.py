"""The seam between the event loop and whatever runs a model."""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

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


@runtime_checkable
class QueueDevice(Device[Work, WorkResult], Protocol[Work, WorkResult]):
    """Also takes the next piece of work while one is under way; the results come in order."""

    async def send(self, work: Work) -> None:
        """Hand over a piece of work; a loss shows when it is received."""
        ...

    async def receive(self) -> WorkResult:
        """Return what the oldest piece of work came to. Raises DeviceLostError."""
        ...

    async def settle(self) -> None:
        """Wait until nothing that was sent is computed any more."""
        ...


class OneAtATime(Generic[W, R]):
    """Makes a queue of a device that has none: what is sent is begun once it is received."""

    def __init__(self, device: Device[W, R]) -> None:
        self._device = device
        self._sent: deque[W] = deque()
        self.watch, self.revive, self.check = device.watch, device.revive, device.check

    @property
    def alive(self) -> bool:
        return self._device.alive

    async def run(self, work: W) -> R:
        return await self._device.run(work)

    async def send(self, work: W) -> None:
        """Keep the work until its turn."""
        self._sent.append(work)

    async def receive(self) -> R:
        """Do the oldest piece of work. Raises DeviceLostError."""
        return await self._device.run(self._sent.popleft())

    async def settle(self) -> None:
        """Do nothing: what was cancelled has ended."""


def queue_of(device: Device[W, R]) -> QueueDevice[W, R]:
    """Return the device as one that takes the next piece of work while one is under way."""
    return device if isinstance(device, QueueDevice) else OneAtATime(device)
