"""Computes prompts in a process of its own, so that rounds of decoding rows stay small.

    Cache --Round--> Prefiller --Prefilled--> Cache

The process shares the target's pages and keeps nothing from one round to the next. If it is lost,
another one is started, and the round is done again: it writes only its rows' own slots. Rows that
decode never wait for it.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import anyio
from msgspec.structs import replace

from draftwerk.actors.devices.device import Device, DeviceLostError
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import CacheMessage, Prefilled, PrefillProcess
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.protocol.rounds import NO_FEEDBACK, Proposal, Round, Verdict

LOSSES_MAX = 2
"""Of processes over one round; then it is given back, as it may be the cause."""
PAUSE_S = 1.0
PAUSE_MAX_S = 60.0


@dataclass(slots=True)
class Prefiller:
    """One prefill process."""

    process: int
    """Its number."""
    inbox: Inbox[Round]
    cache: Outbox[CacheMessage]
    model: Device[Proposal, Verdict]
    trace: Trace = field(default_factory=Trace)
    _told: tuple[int, ...] = ()
    """The sequences that the process was told of by the round before."""
    _mending: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def name(self) -> str:
        return f"prefill {self.process}"

    async def run(self) -> None:
        """Compute one round after the other; ends when there are no more."""
        async with anyio.create_task_group() as beside:
            await self._have_model(inf)
            self._say(up=True)
            beside.start_soon(self._watch)
            async for round_ in self.inbox:
                verdict = await self._compute(round_)
                if verdict is not None:
                    # The cache's mailbox has a place for each process's answer: never full.
                    self.cache.send_nowait(Prefilled(verdict=verdict))
                    continue
                self._say(up=False)
                await self._have_model(inf)
                self._say(up=True)
            beside.cancel_scope.cancel()

    async def _compute(self, round_: Round) -> Verdict | None:
        """Return the verdict, of as many processes as it takes, or None."""
        for _ in range(LOSSES_MAX):
            told = replace(round_, finished_ids=self._told)
            try:
                with self.trace.span(self.name, f"step {round_.round_id}"):
                    verdict = await self.model.run(
                        Proposal(told, (NO_FEEDBACK,) * len(round_.rows))
                    )
            except DeviceLostError:
                if not await self._have_model(1):
                    return None
            else:
                self._told = tuple(row.sequence_id for row in round_.rows)
                return verdict
        return None

    async def _have_model(self, attempts: float) -> bool:
        """Have the process, without any sequence; returns whether it is there in the end."""
        pause_s = PAUSE_S
        while not await self._is_there():
            attempts -= 1
            if attempts <= 0:
                return False
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return True

    async def _is_there(self) -> bool:
        """Start the process if it is away; returns whether it is there."""
        async with self._mending:
            if self.model.alive:
                return True
            self._told = ()
            with self.trace.span(self.name, "start the model"), suppress(DeviceLostError):
                await self.model.revive()
            return self.model.alive

    async def _watch(self) -> None:
        """Start the process again if it is lost while it is idle."""
        while True:
            try:
                return await self.model.watch()
            except DeviceLostError:
                await self._have_model(inf)

    def _say(self, *, up: bool) -> None:
        self.cache.send_nowait(PrefillProcess(process=self.process, up=up))
