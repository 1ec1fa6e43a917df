"""A lane of a Responses socket: its responses run one after the other, in the order they came."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from draftwerk.actors.messages import Failed
from draftwerk.api.core.errors import ApiError
from draftwerk.api.core.generation import Generation
from draftwerk.api.core.state import Call, Door, error_of
from draftwerk.api.openai.responses import ResponsesFormat
from draftwerk.api.openai.responses_schema import ResponsesBody

QUEUE_MAX = 16
"""Responses that may wait in one lane."""

Say = Callable[[Sequence[msgspec.Struct]], Awaitable[None]]


@dataclass(slots=True)
class Job:
    """One response: everything it says, from the first event to the last."""

    door: Door
    call: Call
    format: ResponsesFormat
    say: Say
    generation: Generation | None = None
    entering: asyncio.Timeout | None = None
    """Never expires, but by `cancel`."""
    cancelled: bool = False
    """Whether it was called off, perhaps before there was anything to end."""

    def cancel(self) -> None:
        """End the response early, whether it waits at the door or is in the engine."""
        self.cancelled = True
        if self.generation is not None:
            self.generation.abort("The response was cancelled.", "cancelled")
        elif self.entering is not None:
            self.entering.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Generate and say what happens; an error ends the response, not the socket."""
        await self.say(self.format.opening())
        try:
            async with (
                asyncio.timeout(0 if self.cancelled else None) as self.entering,
                self.door.generation(self.call) as self.generation,
            ):
                await self._tell(self.generation)
        except TimeoutError:
            await self.say(self.format.cancelled(None, None))
        except ApiError as error:
            await self.say(self.format.failure(error))

    async def _tell(self, generation: Generation) -> None:
        meter = generation.meter
        while not generation.over:
            for event in await generation.take():
                if not isinstance(event, Failed):
                    await self.say(self.format.chunks(event, None))
                elif event.kind == "cancelled":
                    await self.say(self.format.cancelled(meter.usage(), meter.metrics()))
                    return
                else:
                    raise error_of(event, self.call)
        await self.say(self.format.closing(meter.usage(), meter.metrics()))


@dataclass(slots=True, frozen=True)
class Wish:
    """A response that a client asked for, before its turn."""

    body: ResponsesBody
    response_id: str
    stream_id: str | None


@dataclass(slots=True)
class Lane:
    """What waits, and what runs."""

    start: Callable[[Wish], Awaitable[Job]]
    """Makes the job when its turn has come; raises ApiError if it cannot be."""
    on_error: Callable[[ApiError, str | None], Awaitable[None]]
    wishes: deque[Wish] = field(default_factory=deque[Wish])
    job: Job | None = None
    cancelled: bool = False
    """Whether the next job was called off before it began."""

    def add(self, wish: Wish) -> None:
        """Queue a response; 429 if too many wait."""
        if len(self.wishes) >= QUEUE_MAX:
            raise ApiError(429, f"{QUEUE_MAX} responses wait in this lane.", code="lane_full")
        self.wishes.append(wish)

    def cancel(self) -> None:
        """End what runs, or what is about to."""
        if self.job is None:
            self.cancelled = True
        else:
            self.job.cancel()

    async def run(self) -> None:
        """Run what is there until nothing is left."""
        while self.wishes:
            wish = self.wishes.popleft()
            try:
                self.job = await self.start(wish)
            except ApiError as error:
                self.cancelled = False
                await self.on_error(error, wish.stream_id)
                continue
            self.job.cancelled, self.cancelled = self.cancelled, False
            await self.job.run()
            self.job = None
