"""The work on a replica: its engine, the doors that are connected, and their live requests."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from draftwerk.actors.engine import Engine
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk_cluster.frame_stream import FrameStream
from draftwerk_cluster.protocol import FromDoor, Leaving, ReplicaWork

PACE_S = 1.0
PACE_SHARE = 0.3
"""The weight of the latest second in the pace of prefill."""


@dataclass(slots=True, eq=False)
class LiveRequest:
    """The cost that a request still has here."""

    tokens: float
    """To be computed before its first token, as the door expects; 0 once that has come."""
    rows: int
    """Texts that it generates now."""
    choices_left: int
    """The number of texts that its client waits for; a beam search generates more than these."""
    since_s: float
    """When it came, on the event loop's clock."""


@dataclass(slots=True, eq=False)
class ReplicaState:
    """The work of all doors together."""

    engine: Engine
    on_depart: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a command has asked this replica to leave."""
    doors: set[FrameStream[FromDoor]] = field(default_factory=set[FrameStream[FromDoor]])
    live: set[LiveRequest] = field(default_factory=set[LiveRequest])
    is_leaving: bool = False
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _prefill_tokens_s: float = 0.0
    """Prompt tokens computed in a second lately, while some waited; 0 where that is not known."""

    async def leave(self, limit_s: float) -> None:
        """Have every stream go on elsewhere; returns once none is left here, or at the limit."""
        self.is_leaving = True
        for door in self.doors:
            door.send(Leaving())
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.live:
                    self._idle.clear()
                    await self._idle.wait()

    def work(self) -> ReplicaWork:
        """Return what this replica has to do."""
        now = asyncio.get_running_loop().time()
        queued = sum(each.tokens for each in self.live)
        waits = [now - each.since_s for each in self.live if each.tokens]
        pace = self._prefill_tokens_s
        return ReplicaWork(
            queued_tokens=queued,
            decode_rows=sum(each.rows for each in self.live if not each.tokens),
            requests=len(self.live),
            wait_s=max([queued / pace if pace else 0.0, *waits]),
        )

    async def watch_pace(self) -> None:
        """Measure how quickly prompts are computed while some wait."""
        computed = computed_tokens(self.engine.snapshot())
        while True:
            waited = any(each.tokens for each in self.live)
            await asyncio.sleep(PACE_S)
            before, computed = computed, computed_tokens(self.engine.snapshot())
            if waited and computed > before:
                pace = (computed - before) / PACE_S
                self._prefill_tokens_s += PACE_SHARE * (pace - (self._prefill_tokens_s or pace))
                self._prefill_tokens_s = self._prefill_tokens_s or pace

    def ended(self, request: LiveRequest) -> None:
        """Forget a request of which nothing is left here."""
        self.live.discard(request)
        if not self.live:
            self._idle.set()


def computed_tokens(snapshot: Snapshot) -> int:
    """Return how many prompt tokens were computed since the engine began."""
    counts = snapshot.counts
    return counts.prompt_tokens - counts.prefix_hits + counts.recomputed_tokens
