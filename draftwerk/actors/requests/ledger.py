"""The ledger: for each live request, what is needed to serve it again after a crash.

It is plain data outside every actor. What it records as delivered is exactly what was delivered,
because both happen in one step. An entry lives until nothing of its request is left in any actor.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import assert_never

import anyio
import msgspec

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.events.option_texts import options_behind
from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import (
    Cancel,
    Closed,
    RequestEvents,
    RouterMessage,
    Submit,
    TokenizerMessage,
)
from draftwerk.actors.requests.suspects import ComputedCount
from draftwerk.speculative.request import Options

SUSPICION_MAX = 24
"""Above it, a request is taken for the cause of the restarts that it has seen."""
SAME_PLACE, ELSEWHERE = 3, 1
"""Suspicion that a restart adds: a request that fails its model does so where it did before."""
NEARBY = 16
"""Steps of a beam search: drafts may bring one that fails its model there in other strides."""
NOWHERE = ComputedCount(-1)


@dataclass(slots=True)
class Entry:
    """One live request."""

    submit: Submit
    events: Outbox[Event]
    committed: list[list[int]] = field(init=False)
    """Per choice, the tokens that its client was sent."""
    ended: set[int] = field(default_factory=set[int])
    cancelled: bool = False
    """A Cancel is on its way through the actors and will come back as Closed."""
    started: bool = False
    """Whether the client was sent the length of its prompt; a restart computes it again."""
    failed: bool = False
    options: Options = field(init=False)
    """The options that it has when it is submitted again."""
    suspicion: int = 0
    """Restarts since its client was last sent a token."""
    computed_count: ComputedCount = NOWHERE
    """How far the actors had come with it at any restart since then."""
    ended_early: bool = False
    """A choice was cancelled by itself, so the actors may still hold something of the request."""

    def __post_init__(self) -> None:
        submit = self.submit
        self.options = submit.options
        self.committed = [[] for _ in range(submit.options.choices)]
        for choice, tokens in enumerate(submit.committed):  # it was begun elsewhere
            self.committed[choice].extend(tokens)
        self.ended.update(submit.ended)

    @property
    def over(self) -> bool:
        """Whether the client has had the last event."""
        return len(self.ended) == len(self.committed)

    def record(self, event: Event) -> None:
        """Note what the client is being sent."""
        match event:
            case Started():
                self.started = True
            case Delta():
                if event.tokens:
                    self._clear()
                self.committed[event.choice].extend(event.tokens)
                self.options = options_behind(self.options, event.further)
            case Ended():
                self._clear()
                self.ended.add(event.choice)
            case Failed():
                self.failed = True
                self.ended.update(range(len(self.committed)))

    def suspect(self, computed_count: ComputedCount) -> None:
        """Note a restart that found it at `computed_count`.

        Its text is the same every time. So one that has come farther than ever did not cause the
        restarts before, and a beam search found well short of where it has been did not cause
        this one: beginning at its prompt again, it sends no token that would clear it.
        """
        if computed_count > self.computed_count:
            self.suspicion, self.computed_count = ELSEWHERE, computed_count
        elif computed_count == self.computed_count:
            self.suspicion += SAME_PLACE
        elif self.computed_count.steps - computed_count.steps > NEARBY:
            self.suspicion = max(0, self.suspicion - SAME_PLACE)
        else:
            self.suspicion += ELSEWHERE

    def _clear(self) -> None:
        """Clear the restarts from before its client got an event."""
        self.suspicion, self.computed_count = 0, NOWHERE

    def resubmission(self) -> Submit:
        """Return the message that takes the request up where its client's text ends."""
        return msgspec.structs.replace(
            self.submit,
            options=self.options,
            committed=tuple(map(tuple, self.committed)),
            ended=tuple(sorted(self.ended)),
        )


@dataclass(slots=True)
class Ledger:
    """Every live request, by id."""

    send: Callable[[TokenizerMessage], None]
    """Takes a message to the head of the actors."""
    on_closed: Callable[[], None]
    """Called whenever a place has become free."""
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])

    def open(self, submit: Submit, events: Outbox[Event]) -> Entry:
        """Enter a request and send it on its way."""
        entry = self.entries[submit.request_id] = Entry(submit, events)
        self.send(submit)
        return entry

    def leave(self, entry: Entry) -> None:
        """Cancel what is left of a request whose client has gone or has had the last event."""
        if self.entries.get(entry.submit.request_id) is entry and not entry.cancelled:
            entry.cancelled = True
            self.send(Cancel(request_id=entry.submit.request_id))

    def deliver(self, message: RouterMessage) -> None:
        """Hand an event to the request that waits for it; late events have no reader and vanish."""
        entry = self.entries.get(message.request_id)
        if entry is None:
            return
        match message:
            case Closed():
                self._forget(entry)
            case RequestEvents():
                for event in message.events:
                    self._tell(entry, event)
            case Failed():
                self._tell(entry, message)
            case _:
                assert_never(message)

    def resubmit(self, computed_counts: Mapping[str, ComputedCount]) -> None:
        """Resubmit every live request to new actors, after the old ones ended in a crash.

        `computed_counts` has, by request id, how far each request had come that was in the step of
        the crash, and so may be its cause. One that was there several times at the same position is
        taken for the cause and fails, so that the others can finish.
        """
        for entry in list(self.entries.values()):
            # Others waited, or were not in the step that failed: they cannot be its cause.
            if (computed_count := computed_counts.get(entry.submit.request_id)) is not None:
                entry.suspect(computed_count)
            if entry.over or entry.cancelled:
                self._forget(entry)  # Nothing of it is left in the new actors.
            elif entry.suspicion > SUSPICION_MAX:
                self._end(entry, "the engine was restarted again and again during this request")
            else:
                self.send(entry.resubmission())

    def fail(self, reason: str) -> None:
        """Send each open request its last event, and drop it."""
        for entry in list(self.entries.values()):
            self._end(entry, reason)

    def _end(self, entry: Entry, reason: str) -> None:
        """Send a request its last event, unless it had one, and drop it."""
        if not entry.over:
            failed = Failed(request_id=entry.submit.request_id, kind="failed", reason=reason)
            entry.record(failed)
            _hand_over(entry, failed)
        self._forget(entry)

    def _tell(self, entry: Entry, event: Event) -> None:
        is_repeated = isinstance(event, Started) and entry.started
        if not entry.over and not is_repeated:
            # No await between the two: what is recorded is what was delivered, whenever a crash
            # comes.
            entry.record(event)
            _hand_over(entry, event)
            self._release(entry, event)

    def _release(self, entry: Entry, event: Event) -> None:
        """Send the actors the Cancel that they need, and drop the entry once no actor holds the
        request.

        Only the detokenizer sees a stop string, and a failed row leaves its siblings running: there
        a Cancel has to follow.
        """
        cache_knows = not (
            (isinstance(event, Ended) and event.stopped_by)
            or (isinstance(event, Failed) and event.kind != "refused")
        )
        if entry.over:
            entry.events.close()
            # Some actor may hold something of it: the entry stays until the Cancel comes back as
            # Closed, so that its id is not used again before.
            if not cache_knows or entry.ended_early:
                self.leave(entry)
            elif not entry.cancelled:
                self._forget(entry)
        elif isinstance(event, Ended) and not cache_knows:
            entry.ended_early = True
            self.send(Cancel(request_id=event.request_id, choice=event.choice))

    def _forget(self, entry: Entry) -> None:
        entry.events.close()
        del self.entries[entry.submit.request_id]
        self.on_closed()


def _hand_over(entry: Entry, event: Event) -> None:
    # The client may have left; then its Cancel is on the way.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        entry.events.send_nowait(event)
