"""Fills rounds with guesses: from sources that read the text, and from a draft model."""

from dataclasses import dataclass, field

import anyio
import msgspec
from anyio.abc import TaskGroup

from draftwerk.actors.devices.device import Device, DeviceLostError
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Draft, Proposal, Round

REVIVAL_PAUSE_S = 1.0
WAIT_S = 1.0
"""No guess is worth a longer wait: a draft model that takes longer is given up for a while."""


@dataclass(slots=True)
class Drafter:
    """The draft model sees every round, since it must read prompts and news, drafting or not.

    A round that wants nothing of it goes on at once; the model reads it while the target works.
    """

    inbox: Inbox[Proposal]
    """Rounds that have no drafts yet."""
    verifier: Outbox[Proposal]
    proposer: Proposer | None
    """None where the target's process drafts, which knows the newest tokens first: no round comes
    by here then."""
    model: Device[Round, tuple[Draft, ...]] | None
    trace: Trace = field(default_factory=Trace)
    lost: bool = False
    """Whether the draft model is away; rounds go on without it."""
    wait_s: float = WAIT_S
    _in_order: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    @property
    def up(self) -> bool | None:
        """Whether the draft model is there; None if there is none to be."""
        return None if self.model is None else not self.lost

    async def run(self) -> None:
        async with anyio.create_task_group() as beside:
            if self.model is not None:
                if not self.model.alive:
                    self._lose(beside)
                beside.start_soon(self._watch, beside)
            async for proposal in self.inbox:
                round_ = proposal.round
                drafts = await self._drafts(round_, beside)
                # One proposal per round under way, and the mailbox holds `pipeline_depth`: never
                # full.
                self.verifier.send_nowait(Proposal(round_, drafts))
            beside.cancel_scope.cancel()

    async def _drafts(self, round_: Round, beside: TaskGroup) -> tuple[Draft, ...]:
        """Return a draft for each row."""
        proposer = self.proposer
        assert proposer is not None, "the target's process drafts"
        with self.trace.span("draft", f"round {round_.round_id}"):
            prepared = proposer.prepare(round_, has_model=self.model is not None)
            model_drafts, model_ms = await self._model_drafts(proposer, prepared, beside)
            return proposer.finish(prepared, model_drafts, model_ms)

    async def _model_drafts(
        self, proposer: Proposer, prepared: Prepared, beside: TaskGroup
    ) -> tuple[tuple[Draft, ...], float]:
        """Return the draft model's drafts, where they are expected to pay, and their time."""
        round_ = prepared.round
        nothing = (NO_DRAFT,) * len(round_.rows)
        if self.model is None or self.lost:
            return nothing, 0.0
        wanted = proposer.model_lengths(prepared)
        reading = DraftReading(limited(round_, wanted), any(wanted))
        begun = anyio.current_time()
        beside.start_soon(self._read, reading, beside)
        with anyio.move_on_after(self.wait_s) as patience:
            await reading.enough.wait()
        if patience.cancelled_caught:
            self._lose(beside)
        if not (reading.drafts and reading.wanted):
            return nothing, 0.0
        return reading.drafts, 1e3 * (anyio.current_time() - begun)

    async def _read(self, reading: "DraftReading", beside: TaskGroup) -> None:
        """Run the model on a round before any later one, even if the round no longer waits."""
        assert self.model is not None
        async with self._in_order:
            if not reading.wanted:
                reading.enough.set()
            try:
                reading.drafts = await self.model.run(reading.round)
            except DeviceLostError:
                self._lose(beside)  # A guess less costs speed, never text.
            reading.enough.set()

    def _lose(self, beside: TaskGroup) -> None:
        if not self.lost:
            self.lost = True
            beside.start_soon(self._revive)

    async def _watch(self, beside: TaskGroup) -> None:
        """Notice a model that is lost while it is idle."""
        assert self.model is not None
        while True:
            try:
                return await self.model.watch()
            except DeviceLostError:
                self._lose(beside)

    async def _revive(self) -> None:
        """Bring the model back; it will draft for the sequences that open from then on."""
        assert self.model is not None
        while self.lost:
            try:
                async with self._in_order:  # behind a step that is late
                    await self.model.revive()
                self.lost = False
            except DeviceLostError:
                await anyio.sleep(REVIVAL_PAUSE_S)


@dataclass(slots=True)
class DraftReading:
    """A round on its way through the draft model."""

    round: Round
    wanted: bool
    """Whether the target's round waits for the guesses."""
    drafts: tuple[Draft, ...] = ()
    enough: anyio.Event = field(default_factory=anyio.Event)
    """Set once the target's round may go on."""


def limited(round_: Round, wanted: tuple[int, ...]) -> Round:
    """Return the round with room for as many drafts as are wanted of each row."""
    rows = tuple(
        msgspec.structs.replace(row, draft_max=min(row.draft_max, count))
        for row, count in zip(round_.rows, wanted, strict=True)
    )
    return msgspec.structs.replace(round_, rows=rows)
