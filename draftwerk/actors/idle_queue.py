"""Work for idle moments: one thing after the other, each begun while the engine is idle."""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

import anyio

from draftwerk.actors.errors import DrainingError, OverloadedError
from draftwerk.actors.mailbox import Inbox
from draftwerk.actors.messages import Event, Options, Prompt

WAITING_MAX = 64
"""What waits for an idle moment; on a busy server the oldest are let go."""
LAST = 2**31
"""A priority behind every client's."""
T = TypeVar("T")


class Audited(Protocol):
    """The engine, as audits see it."""

    def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AbstractAsyncContextManager[Inbox[Event]]: ...

    async def idle(self) -> None:
        """Return once no request is live."""
        ...


class IdleQueue(Generic[T]):
    """What waits for an idle moment."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque(maxlen=WAITING_MAX)
        self._more = anyio.Event()

    def put(self, item: T) -> None:
        """Keep an item for the next idle moment."""
        self._waiting.append(item)
        self._more.set()

    async def run(self, engine: Audited, work: Callable[[T], Awaitable[None]]) -> None:
        """Do the work of one item after the other; one that the engine has no place for waits."""
        while True:
            if not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            await engine.idle()
            item = self._waiting.popleft()
            try:
                await work(item)
            except (OverloadedError, DrainingError):
                self._waiting.append(item)
                await anyio.sleep(1.0)
