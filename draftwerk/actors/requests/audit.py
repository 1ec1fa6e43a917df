"""The online audit: decodes a share of finished requests again, plainly, and compares.

The second time there is no speculation and no prefix that the first one left behind, so whatever
made the first text depend on anything but prompt, parameters and seed shows as a mismatch.
"""

import random
from collections import Counter, deque
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import msgspec

from draftwerk.actors.events.client_events import Delta, Event, Failed
from draftwerk.actors.mailbox import Inbox
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk.actors.requests.ledger import Entry
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.slo import NO_SLO

PREFIX = "audit-"
WAITING_MAX = 64
"""Requests that wait for an idle moment; on a busy server the oldest are let go."""
LAST = 2**31
"""A priority behind every client's."""


class Audited(Protocol):
    """The engine, as the audit sees it."""

    def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AbstractAsyncContextManager[Inbox[Event]]: ...

    async def idle(self) -> None:
        """Return once no request is live."""
        ...


@dataclass(slots=True)
class Audit:
    """Picks finished requests at random, and counts what comes of them."""

    share: float
    rng: random.Random = field(default_factory=random.Random)
    counts: Counter[str] = field(default_factory=Counter[str])
    """"equal", "token" (one differs), "length" (one text is the other's beginning), "failed"."""
    _waiting: deque[Entry] = field(default_factory=lambda: deque[Entry](maxlen=WAITING_MAX))
    _more: anyio.Event = field(default_factory=anyio.Event)

    def offer(self, entry: Entry) -> None:
        """Maybe keep a finished request for the next idle moment."""
        finished = entry.over and not entry.failed
        own = entry.submit.request_id.startswith(PREFIX)
        if finished and not own and self.rng.random() < self.share:
            self._waiting.append(entry)
            self._more.set()

    async def run(self, engine: Audited) -> None:
        """Audit one request after the other, each begun while the engine is idle.

        One that the engine has no place for waits.
        """
        while True:
            if not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            await engine.idle()
            entry = self._waiting.popleft()
            try:
                self.counts[await self._compare(engine, entry)] += 1
            except (OverloadedError, DrainingError):
                self._waiting.append(entry)
                await anyio.sleep(1.0)

    async def _compare(self, engine: Audited, entry: Entry) -> str:
        submit = entry.submit
        again: list[list[int]] = [[] for _ in entry.committed]
        options = plain(submit.options)
        name = PREFIX + submit.request_id
        async with engine.generate(submit.prompt, options, request_id=name) as events:
            async for event in events:
                if isinstance(event, Failed):
                    return "failed"
                if isinstance(event, Delta):
                    again[event.choice].extend(event.tokens)
        return kind(entry.committed, again)


def plain(options: Options) -> Options:
    """Return the options of the second decoding."""
    return msgspec.structs.replace(
        options,
        speculation=Speculation(enabled=False),
        cache_salt=PREFIX + options.name_space,
        priority=LAST,
        slo=NO_SLO,
        deadline_s=0.0,
    )


def kind(first: list[list[int]], second: list[list[int]]) -> str:
    """Return how two decodings of one request compare."""
    if first == second:
        return "equal"
    differs = any(a != b for x, y in zip(first, second, strict=True) for a, b in zip(x, y))  # noqa: B905
    return "token" if differs else "length"
