"""One client request in the engine: its prompts, its events, and a place where they wait.

    engine ──Event──> pump ──> pending, deltas of one choice merged ──> take() ──> the client

The pump never waits for the client: what a slow reader leaves is merged, and is bounded by the
request's own token limit. Closing the generation closes the engine's streams.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.events.option_texts import NO_FURTHER_TEXTS, FurtherTexts
from draftwerk.api.shared.calls import EventObserver
from draftwerk.api.shared.ports import EngineClient
from draftwerk.api.shared.request_timer import RequestTimer
from draftwerk.speculative.replies.parser import joined_parts
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt

GenerationEvent = Delta | Ended | Failed
"""Events that a client is told of."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True, eq=False)
class Generation:
    """The events of one client request; choice numbers run over all its prompts."""

    request_id: str
    timer: RequestTimer
    sources_left: int
    choices_left: int
    observers: Sequence[EventObserver] = ()
    pending: list[GenerationEvent] = field(default_factory=list[GenerationEvent])
    finished: bool = False
    outcome: str = "cancelled"
    """How it ended; cancelled until it has."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self) -> list[GenerationEvent]:
        """Return what has come since the last call, waiting for something; [] if woken."""
        if not self.pending:
            await self.ready.wait()
        events, self.pending = self.pending, []
        self.ready.clear()
        return events

    def wake(self) -> None:
        """Let `take` return, though nothing has come."""
        self.ready.set()

    async def events(self) -> AsyncIterator[GenerationEvent]:
        """Yield every event, for readers that need only the whole."""
        while not self.over:
            for event in await self.take():
                yield event

    @property
    def over(self) -> bool:
        """Whether the last event has been taken."""
        return self.finished and not self.pending

    def put(self, event: Event) -> None:
        """Add an event behind the others; after the last there is none."""
        if self.finished:
            return
        self.timer.observe(event)
        for each in self.observers:
            each.observe(event)
        match event:
            case Started():
                return
            case Delta():
                self._merge(event)
            case Ended():
                self.pending.append(event)
                self.choices_left -= 1
                self.finished = self.choices_left == 0
                self.outcome = event.finish_reason if self.finished else self.outcome
            case Failed():
                self.pending.append(event)
                self.finished = True
                self.outcome = event.kind
        self.ready.set()

    def abort(self, reason: str, kind: str = "failed") -> None:
        """End the request with an error as its last event."""
        self.put(Failed(request_id=self.request_id, kind=kind, reason=reason))

    def _merge(self, delta: Delta) -> None:
        # Only the last few events can be of this choice's round; a scan from the end is short.
        for index in range(len(self.pending) - 1, -1, -1):
            event = self.pending[index]
            if isinstance(event, Delta) and event.choice == delta.choice:
                self.pending[index] = merged(event, delta)
                return
        self.pending.append(delta)


def merged(first: Delta, then: Delta) -> Delta:
    """Return one delta in place of two successive ones."""
    return Delta(
        request_id=first.request_id,
        choice=first.choice,
        text=first.text + then.text,
        tokens=first.tokens + then.tokens,
        origins=first.origins + then.origins,
        logprobs=first.logprobs + then.logprobs,
        further=_merged_further(first, then),
        parts=tuple(joined_parts([*first.parts, *then.parts])),
    )


def _merged_further(first: Delta, then: Delta) -> FurtherTexts:
    before, after = first.further, then.further
    if before == after == NO_FURTHER_TEXTS:
        return NO_FURTHER_TEXTS
    return FurtherTexts(
        scored=before.scored + after.scored,
        margin=after.margin if before.margin is None else before.margin,
        hypothesis=after.hypothesis or ("" if then.tokens else before.hypothesis),
    )


@asynccontextmanager
async def opened(
    engine: EngineClient,
    prompts: Sequence[Prompt],
    options: Options,
    request_id: str,
    timer: RequestTimer,
    observers: Sequence[EventObserver] = (),
) -> AsyncGenerator[Generation, None]:
    """Submit every prompt and yield their joint events; raises what `engine.generate` raises."""
    async with AsyncExitStack() as stack:
        sources = [
            await stack.enter_async_context(
                engine.generate(prompt, options, request_id=f"{request_id}-{index}")
            )
            for index, prompt in enumerate(prompts)
        ]
        choices = len(prompts) * options.choices
        generation = Generation(request_id, timer, len(prompts), choices, observers)
        pumps = [
            asyncio.create_task(_pump(source, generation, index * options.choices))
            for index, source in enumerate(sources)
        ]
        try:
            yield generation
        finally:
            await _ended(pumps)


async def _pump(source: AsyncIterator[Event], generation: Generation, offset: int) -> None:
    """Move one prompt's events over; an engine that breaks is the request's last event."""
    try:
        async for event in source:
            generation.put(_renumbered(event, offset) if offset else event)
    except Exception:
        log.exception("id=%s the engine's stream broke", generation.request_id)
        generation.abort("The engine failed.")
    generation.sources_left -= 1
    if not generation.sources_left:
        generation.abort("The engine ended the stream without a last word.")


def _renumbered(event: Event, offset: int) -> Event:
    if isinstance(event, Failed):
        return event
    return msgspec.structs.replace(event, choice=event.choice + offset)


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
