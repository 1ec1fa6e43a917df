"""Fills rounds with guesses: from sources that read the text, and from a draft model."""

from dataclasses import dataclass, field

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from actors.device import Device, DeviceLostError
from actors.mailbox import Inbox, Outbox
from actors.trace import Trace
from speculative.proposer import Proposer
from speculative.rounds import NO_DRAFT, Draft, Proposal, Round

REVIVAL_PAUSE_S = 1.0


@dataclass(slots=True)
class Drafter:
    """The draft model sees every round, since it must read prompts and news, drafting or not.

    A round that wants nothing of it goes on at once; the model reads it while the target works.
    """

    inbox: Inbox[Round]
    verifier: Outbox[Proposal]
    proposer: Proposer
    model: Device[Round, tuple[Draft, ...]] | None
    trace: Trace = field(default_factory=Trace)
    lost: bool = False
    """Whether the draft model is away; rounds go on without it."""
    _in_order: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    async def run(self) -> None:
        async with anyio.create_task_group() as beside:
            async for round_ in self.inbox:
                with self.trace.span("draft", f"round {round_.round_id}"):
                    model_drafts, model_ms = await self._model_drafts(round_, beside)
                    drafts = self.proposer.propose(round_, model_drafts, model_ms)
                # One proposal per round under way, and the mailbox holds `lanes`: never full.
                self.verifier.send_nowait(Proposal(round_, drafts))

    async def _model_drafts(
        self, round_: Round, beside: TaskGroup
    ) -> tuple[tuple[Draft, ...], float]:
        """Return the draft model's guesses, where they are worth asking for, and what they took."""
        nothing = (NO_DRAFT,) * len(round_.rows)
        if self.model is None or self.lost:
            return nothing, 0.0
        wanted = self.proposer.wants_model(round_)
        if not any(wanted):
            await beside.start(self._tell, limited(round_, wanted), beside)
            return nothing, 0.0
        begun = anyio.current_time()
        async with self._in_order:
            drafts = await self._run(limited(round_, wanted), beside)
        return drafts or nothing, 1e3 * (anyio.current_time() - begun)

    async def _tell(
        self, round_: Round, beside: TaskGroup, *, task_status: TaskStatus[None]
    ) -> None:
        """Let the model read a round that wants no guesses, before any later one."""
        async with self._in_order:
            task_status.started()
            await self._run(round_, beside)

    async def _run(self, round_: Round, beside: TaskGroup) -> tuple[Draft, ...] | None:
        assert self.model is not None
        try:
            return await self.model.run(round_)
        except DeviceLostError:
            # A guess less costs speed, never text.
            if not self.lost:
                self.lost = True
                beside.start_soon(self._revive)
            return None

    async def _revive(self) -> None:
        """Bring the model back; it will draft for the sequences that open from then on."""
        assert self.model is not None
        while self.lost:
            await anyio.sleep(REVIVAL_PAUSE_S)
            try:
                await self.model.revive()
                self.lost = False
            except DeviceLostError:
                continue


def limited(round_: Round, wanted: tuple[int, ...]) -> Round:
    """Return the round with room for as many drafts as are wanted of each row."""
    rows = tuple(
        msgspec.structs.replace(row, draft_max=min(row.draft_max, count))
        for row, count in zip(round_.rows, wanted, strict=True)
    )
    return msgspec.structs.replace(round_, rows=rows)
