"""A target whose pages outlive its process: losing one costs the rounds in flight and no more.

    process lost ── a spare takes over, or one is started ── rounds in flight are sent again

Only what this cannot mend reaches the actors as DeviceLostError: blocks left half moved, a round
that is lost twice, or too many losses in a short time. Then they are built anew, as after any bug.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from draftwerk.actors.devices.child import Child
from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.process import BEAT_S, ModelRefusedError, ProcessDevice
from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight, token_count
from draftwerk.speculative.protocol.frames import OnProgress, Ready
from draftwerk.speculative.rounds import Proposal, Verdict

LOSSES_MAX = 1
"""The most processes lost over a round; one that takes a second with it may be the cause."""
SPARE_PAUSE_S = 0.5
"""Before a spare is started: text goes first, and a spare takes a core for seconds."""
SPARE_PAUSE_MAX_S = 60.0
SPARE_WAIT_S = 5.0
"""For a spare that is being started when it is needed."""
TargetProcess = ProcessDevice[Proposal, Verdict]
SpawnChild = Callable[[], Awaitable[Child]]

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class RecoveryStats:
    """Counters since start; they outlive the devices' pipelines."""

    recoveries: int = 0
    """Processes replaced while sequences and pages stayed."""
    redone_tokens: int = 0
    """Computed in rounds that were sent again, drafts included."""


@dataclass(slots=True)
class RecoveringTarget:
    """A `Device` for the target, over a process whose pages are the server's."""

    process: TargetProcess
    rounds: RoundsInFlight
    spare: TargetProcess | None = None
    """A process that stands ready to take over."""
    stats: RecoveryStats = field(default_factory=RecoveryStats)
    limit: RestartLimit = field(default_factory=RestartLimit)
    _spare_is_ready: bool = False
    _spare_starts: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a spare is started: who needs it then waits for it."""
    _in_order: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    _losses: int = 0
    """Since a round was answered."""

    @property
    def process_id(self) -> int | None:
        """The id of the process that works, while there is one."""
        return self.process.process_id

    @property
    def alive(self) -> bool:
        """Whether work can be done at once."""
        return self.process.alive

    @property
    def processes(self) -> dict[str, int | None]:
        """The ids of the processes by what they are for; None for one that is away."""
        process_ids = {"target": self.process.process_id if self.process.alive else None}
        process_ids |= self.process.rank_ids
        if self.spare is not None:
            process_ids["spare"] = self.spare.process_id if self._spare_is_ready else None
        return process_ids

    async def start(self, report: OnProgress = lambda _: None) -> Ready:
        """Start the process that works; raises ModelRefusedError and DeviceLostError."""
        return await self.process.start(report)

    def succeed_by(self, spawn: SpawnChild, spare: SpawnChild | None) -> None:
        """Say what starts later processes, and those that stand ready, if any do."""
        self.process.spawn = spawn
        if spare is not None:
            self.spare = ProcessDevice(spare, Verdict, self.process.silence_s)

    def fresh(self) -> "RecoveringTarget":
        """Return the device for a new pipeline, without any sequence."""
        self.rounds.forget()
        self._losses = 0
        self.process.fresh()
        return self

    async def send(self, work: Proposal) -> None:
        """Hand over a round, behind another one perhaps; a loss shows when it is received."""
        # Not while a loss is mended: the rounds that are sent again come before this one.
        async with self._in_order:
            await self.process.send(self.rounds.sent(work))

    async def receive(self) -> Verdict:
        """Return the answer to the oldest round, on as many processes as it takes.

        Raises DeviceLostError.
        """
        while True:
            try:
                verdict = await self.process.receive()
            except DeviceLostError as error:
                async with self._in_order:
                    await self._recover(error)
            else:
                self.rounds.answered(verdict.decisions)
                self._losses = 0
                return verdict

    async def settle(self) -> None:
        """Wait until no round is computed any more."""
        await self.process.settle()

    async def revive(self) -> None:
        """Make a process ready that holds no sequence. Raises DeviceLostError."""
        async with self._in_order:
            self.rounds.forget()
            self._losses = 0
            if not self.process.alive:
                await self._replace()
            else:
                await self.process.revive()

    async def watch(self) -> None:
        """Look after the processes while they have no work; replaces those that are lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_process)
            if self.spare is not None:
                tasks.start_soon(self._keep_spare, self.spare)

    def check(self) -> None:
        """Assert that what another process would be told is sound."""
        self.rounds.check()

    async def close(self) -> None:
        """End all processes, and let go of their pages."""
        await self.process.close()
        if self.spare is not None:
            await self.spare.close()
        self.rounds.journal.close()

    async def _watch_process(self) -> None:
        while True:
            try:
                return await self.process.watch()
            except DeviceLostError as error:
                async with self._in_order:
                    if not self.process.alive:
                        await self._recover(error)

    async def _recover(self, error: DeviceLostError) -> None:
        """Have a process that knows nothing, and send it the rounds in flight, oldest first."""
        self._losses += bool(self.rounds.in_flight)  # no round is the cause of an idle loss
        again = self.rounds.lost()
        # None: copies or moves were half made. A round that costs a second process may be the
        # cause.
        if again is None or self._losses > LOSSES_MAX:
            raise error
        if self.limit.pause(anyio.current_time()) is None:
            raise error
        log.warning("another model process takes over: %s", error)
        try:
            await self._replace()
        except BaseException:
            # The rounds are in no process now: the next `receive` must fail, not mend once more.
            self._losses = LOSSES_MAX + 1
            raise
        self.stats.recoveries += 1
        self.stats.redone_tokens += token_count(self.rounds.in_flight)
        # In their old order: a later round may continue rows of an earlier one.
        for told in again:
            await self.process.send(told)

    async def _replace(self) -> None:
        """Have a process that was told nothing yet: the spare, or a new one."""
        if self.spare is not None and await self._has_spare():
            self._spare_is_ready = False
            self.process.adopt(self.spare)
        else:
            await self.process.revive()

    async def _has_spare(self) -> bool:
        """Return whether a spare is ready, or was within the time that a new process takes."""
        with anyio.move_on_after(SPARE_WAIT_S):
            async with self._spare_starts:
                return self._spare_is_ready
        return False

    async def _keep_spare(self, spare: TargetProcess) -> None:
        """Have a spare whenever there is none; one that is lost is started again, ever later."""
        pause_s = SPARE_PAUSE_S
        while True:
            await anyio.sleep(BEAT_S if self._spare_is_ready else pause_s)
            try:
                if self._spare_is_ready:
                    await spare.beat()
                    pause_s = SPARE_PAUSE_S
                # Not beside a target that is being started: the text that waits for that one goes
                # first.
                elif self.process.alive:
                    await self._start_spare(spare)
            except (DeviceLostError, ModelRefusedError) as error:
                log.warning("the spare model process is started again: %s", error)
                self._spare_is_ready = False
                pause_s = min(2 * pause_s, SPARE_PAUSE_MAX_S)

    async def _start_spare(self, spare: TargetProcess) -> None:
        async with self._spare_starts:
            await spare.start()
            self._spare_is_ready = True
