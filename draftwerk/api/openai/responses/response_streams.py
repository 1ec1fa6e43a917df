"""A stream of a Responses socket: its responses run one after the other, in order of arrival."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from draftwerk.actors.events.client_events import Failed
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.responses.responses_serializer import ResponsesSerializer
from draftwerk.api.shared.calls import Call, SentBody, error_of
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.generation import Generation
from draftwerk.api.shared.memory import HeldBody
from draftwerk.api.shared.models import Release, nothing_held
from draftwerk.api.shared.prompt_tokens import check_length
from draftwerk.api.shared.state import ServerState

QUEUE_MAX = 16
"""Responses that may wait in one stream."""

Say = Callable[[Sequence[msgspec.Struct]], Awaitable[None]]


@dataclass(slots=True)
class ResponseTask:
    """One response: all of its events, from the first to the last."""

    state: ServerState
    call: Call
    serializer: ResponsesSerializer
    say: Say
    release: Release = nothing_held
    """Gives the model back once the response has ended."""
    on_failure: Callable[[], None] = nothing_held
    generation: Generation | None = None
    entering: asyncio.Timeout | None = None
    """Never expires, but by `cancel`."""
    cancelled: bool = False
    """Whether it was called off, perhaps before there was anything to end."""

    def cancel(self) -> None:
        """End the response early, whether it waits for admission or is in the engine."""
        self.cancelled = True
        if self.generation is not None:
            self.generation.abort("The response was cancelled.", "cancelled")
        elif self.entering is not None:
            self.entering.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Generate and send the events; an error ends the response, not the socket."""
        try:
            await check_length(self.state, self.call)
            await self.say(self.serializer.first_chunks())
            async with (
                asyncio.timeout(0 if self.cancelled else None) as self.entering,
                self.state.generation(self.call) as self.generation,
            ):
                await self._tell(self.generation)
        except TimeoutError:
            await self.say(self.serializer.cancelled(None, None))
        except ApiError as error:
            self.on_failure()
            await self.say(self.serializer.failure(error))
        finally:
            self.release()

    async def _tell(self, generation: Generation) -> None:
        timer = generation.timer
        while not generation.over:
            for event in await generation.take():
                if not isinstance(event, Failed):
                    await self.say(self.serializer.chunks(event, None))
                elif event.kind == "cancelled":
                    await self.say(self.serializer.cancelled(timer.usage(), timer.metrics()))
                    return
                else:
                    raise error_of(event, self.call)
        await self.say(self.serializer.last_chunks(timer.usage(), timer.metrics()))


@dataclass(slots=True, frozen=True)
class PendingResponse:
    """A response that a client asked for, before its turn."""

    body: ResponsesBody
    response_id: str
    stream_id: str | None
    held: HeldBody
    """Room that its message takes."""
    sent: SentBody | None = None
    """For the record, if there is one."""


@dataclass(slots=True)
class ResponseStream:
    """The responses that wait, and those that run."""

    start: Callable[[PendingResponse], Awaitable[ResponseTask]]
    """Makes the job when its turn has come; raises ApiError if it cannot be."""
    on_error: Callable[[ApiError, str | None], Awaitable[None]]
    pending: deque[PendingResponse] = field(default_factory=deque[PendingResponse])
    response_task: ResponseTask | None = None
    cancelled: bool = False
    """Whether the next job was called off before it began."""

    def add(self, pending: PendingResponse) -> None:
        """Queue a response; 429 if too many wait."""
        if len(self.pending) >= QUEUE_MAX:
            raise ApiError(429, f"{QUEUE_MAX} responses wait in this stream.", code="lane_full")
        self.pending.append(pending)

    def cancel(self) -> None:
        """End what runs, or what is about to."""
        if self.response_task is None:
            self.cancelled = True
        else:
            self.response_task.cancel()

    async def run(self) -> None:
        """Run what is there until nothing is left."""
        while self.pending:
            pending = self.pending.popleft()
            await self._run_one(pending)
            pending.held.release()

    async def _run_one(self, pending: PendingResponse) -> None:
        try:
            self.response_task = await self.start(pending)
        except ApiError as error:
            self.cancelled = False
            await self.on_error(error, pending.stream_id)
            return
        self.response_task.cancelled, self.cancelled = self.cancelled, False
        await self.response_task.run()
        self.response_task = None
