"""When lines of batches may run: while the server serves nothing else.

A line that runs when another request comes is given up and asked again later: nothing of it was
told to anybody, and what was read of its prompt stays cached. Where others are served all the time,
one line in a while runs beside them.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from draftwerk.api.openai.batches.objects import LineAnswer
from draftwerk.api.shared.state import ServerState

POLL_S = 0.01
"""Between two looks at whether others are served."""
PATIENCE_S = 60.0
"""Without an answered line, until one runs beside other requests."""
LINE_ID = "batch_req_"
"""The beginning of the ids of lines."""


def others_served(states: Iterable[ServerState]) -> bool:
    """Whether requests are under way that are no lines of batches."""
    return any(not each.request_id.startswith(LINE_ID) for state in states for each in state.live)


@dataclass(slots=True)
class Turns:
    """When lines may run."""

    is_busy: Callable[[], bool]
    places: asyncio.Semaphore
    clock: Callable[[], float] = time.monotonic
    answered: float = field(init=False)
    """When a line was answered last."""
    beside: bool = False
    """Whether a line runs beside others."""

    def __post_init__(self) -> None:
        self.answered = self.clock()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[bool, None]:
        """Wait for a place; yields whether the line stays though others come."""
        async with self.places:
            stays = False
            while self.is_busy() and not stays:
                if stays := not self.beside and self.clock() - self.answered > PATIENCE_S:
                    self.beside = True
                else:
                    await asyncio.sleep(POLL_S)
            try:
                yield stays
            finally:
                if stays:
                    self.beside, self.answered = False, self.clock()

    async def undisturbed(
        self, work: Coroutine[Any, Any, LineAnswer], stays: bool
    ) -> LineAnswer | None:
        """Return what work comes to; None where it gave way to other requests."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=None if stays else POLL_S)
                if not (stays or task.done()) and self.is_busy():
                    return None
            self.answered = self.clock()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
