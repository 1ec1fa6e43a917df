"""A device in a process of its own: its crash, its memory and its GIL are not the server's."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import msgspec

from draftwerk.actors.devices.child import Child
from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.machine.process_activity import cpu_time, is_starved, process_activity
from draftwerk.speculative.protocol.frames import (
    FrameKind,
    OnProgress,
    Ready,
    decode,
    encode,
    frame,
)

log = logging.getLogger("draftwerk")
W = TypeVar("W")
R = TypeVar("R")

BEAT_S = 1.0
"""Seconds between two heartbeats of a process."""
SILENCE_S = 8.0
"""One that is silent for this long is stopped or stuck."""
LOADING_SILENCE_S = 60.0
"""While a process imports and reads, no beat may come for long where the machine is busy."""
STEP_S = 120.0
"""No step takes this long: one that does hangs, though its process beats."""
LOAD_S = 600.0
LOST = (
    OSError,
    DeviceLostError,
    anyio.EndOfStream,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    msgspec.MsgspecError,  # a malformed frame
)


class ModelRefusedError(Exception):
    """The model cannot be served with these options; the message has the reason."""


@dataclass(slots=True)
class ProcessDevice(Generic[W, R]):
    """Runs a model in a child process; `revive` runs another child after one was lost."""

    spawn: Callable[[], Awaitable[Child]]
    result_type: type[R]
    silence_s: float = SILENCE_S
    ready: Ready | None = None
    """The child's report."""
    _child: Child | None = None
    _stale: bool = False
    """Whether the child holds sequences of an earlier pipeline."""
    _is_loading: bool = False
    """Whether the child is not ready yet."""
    _heard_at: float = 0.0
    """When the child last sent a frame, on the event loop's clock."""
    _heard_cpu_s: float | None = None
    """The CPU time that it had had then, where it was idle."""
    _one_at_a_time: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    _sending: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    _unanswered: int = 0
    """Pieces of work that the child was sent and has not answered."""
    _unsent: Exception | None = None
    """Why a piece of work did not reach the child; found out in the order of the work."""

    @property
    def process_id(self) -> int | None:
        """The child's, while there is one."""
        return None if self._child is None else self._child.process_id

    @property
    def rank_ids(self) -> dict[str, int | None]:
        """The ids of the processes that compute with the child, while there is one."""
        ranks = () if self.ready is None else self.ready.ranks
        return {
            f"rank {rank}": process_id if self.alive else None
            for rank, process_id in enumerate(ranks, 1)
        }

    @property
    def alive(self) -> bool:
        """Whether work can be done at once."""
        return self._child is not None and not self._is_loading

    async def start(self, report: OnProgress = lambda _: None) -> Ready:
        """Start the child and wait until it can work; `report` gets its progress lines.

        Raises ModelRefusedError, and DeviceLostError if it dies before.
        """
        self._stale = False
        self._forget_work()
        self._is_loading = True
        try:
            self._child = await self.spawn()
            ready = await self._wait_until_ready(report)
            self._is_loading, self.ready = False, ready
            return ready
        # When cancelled as well: a child that is half started keeps its memory otherwise.
        except BaseException as error:
            await self.close()
            if isinstance(error, LOST):
                raise DeviceLostError(f"the model process died: {error!r}") from error
            raise

    async def _wait_until_ready(self, report: OnProgress) -> Ready:
        with anyio.move_on_after(LOAD_S):
            while True:
                kind, payload = await self._receive(max(self.silence_s, LOADING_SILENCE_S))
                if kind == FrameKind.READY:
                    return decode(payload, type=Ready)
                if kind == FrameKind.REFUSED:
                    raise ModelRefusedError(payload.decode(errors="replace"))
                if kind == FrameKind.LOADING:
                    report(payload.decode(errors="replace"))
        raise DeviceLostError(f"the model took longer than {LOAD_S:g} s to load")

    def fresh(self) -> "ProcessDevice[W, R]":
        """Return the device for a new pipeline, without any sequence."""
        # Told with the next work, not now: a fresh pipeline may find the child dead, and start
        # another that has nothing to forget.
        self._stale = True
        return self

    def adopt(self, other: "ProcessDevice[W, R]") -> None:
        """Go on with the child of another device, which has none from then on."""
        assert self._child is None, "there is a child already"
        self._child, other._child, self._is_loading = other._child, None, False
        # Nobody has read the beats of a spare: its silence is counted from now on.
        self._heard_at, self._stale = anyio.current_time(), other._stale
        self._forget_work()
        self.ready = other.ready

    async def send(self, work: W) -> None:
        """Hand over a piece of work, behind others perhaps; a loss shows when it is received."""
        data = frame(FrameKind.WORK, encode(work))
        # In one write with the work, so that nothing comes between forgetting and the first row.
        if self._stale:
            data = frame(FrameKind.RESET) + data
        self._stale = False
        self._unanswered += 1
        # Shielded: half a frame in the pipe would garble every frame behind it.
        with anyio.move_on_after(self.silence_s, shield=True) as patience:
            async with self._sending:
                await self._send(data)
        if patience.cancelled_caught and self._unsent is None:
            self._unsent = DeviceLostError(f"it took nothing in for {self.silence_s:g} s")

    async def receive(self) -> R:
        """Return what the oldest piece of work came to. Raises DeviceLostError."""
        try:
            result = decode(await self._result(), type=self.result_type)
        except LOST as error:
            async with self._sending:  # nobody may wait for a pipe that is closed
                await self.close()
            # What kept the work from the child came first; the end of the pipe only followed.
            cause = self._unsent or error
            self._forget_work()
            raise DeviceLostError(f"the model process was lost: {cause!r}") from cause
        self._unanswered -= 1
        return result

    async def settle(self) -> None:
        """Wait until nothing that was sent is computed any more: it writes to the pages."""
        with anyio.CancelScope(shield=True):
            while self._unanswered:
                with suppress(DeviceLostError):
                    await self.receive()

    def _forget_work(self) -> None:
        self._unanswered, self._unsent = 0, None

    async def revive(self) -> None:
        """Make ready a child without any sequence: a new one, if the last one is gone."""
        async with self._one_at_a_time:
            if self._child is not None:
                self._stale = True
                return
            try:
                await self.start()
            except ModelRefusedError as error:  # though it was served before
                raise DeviceLostError(f"the model did not come back: {error}") from error

    async def watch(self) -> None:
        """Look after the child while it has no work; raises DeviceLostError once it is gone."""
        while True:
            await anyio.sleep(BEAT_S)
            if self._child is None or self._one_at_a_time.locked() or self._unanswered:
                continue  # the step under way notices a loss
            await self.beat()

    async def beat(self) -> None:
        """Take the beats of an idle child; raises DeviceLostError if it is gone or silent."""
        async with self._one_at_a_time:
            if self._child is None or self._unanswered:
                return
            try:
                self._listen()
            except LOST as error:
                await self.close()
                raise DeviceLostError(f"the idle model process was lost: {error!r}") from error

    def _listen(self) -> None:
        """Take the beats of an idle child, which would fill its pipe in the end."""
        assert self._child is not None
        now, process_id = anyio.current_time(), self._child.process_id
        if self._child.poll():
            self._heard_at, self._heard_cpu_s = now, cpu_time(process_id)
        elif now - self._heard_at > self.silence_s:
            heard_s, seen = self._heard_cpu_s, process_activity(process_id)
            # On an overloaded machine a sound child is silent too; its CPU time tells them apart.
            if not is_starved(heard_s, heard_s, seen, self.silence_s):
                raise DeviceLostError(f"no sign of life for {self.silence_s:g} s")

    def check(self) -> None:
        """Do nothing: what the child knows is kept nowhere else."""

    async def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            with anyio.CancelScope(shield=True):
                await child.close()

    async def _result(self) -> bytes:
        """Return the child's next result."""
        if self._child is None:
            raise DeviceLostError("it was gone before")
        begun = anyio.current_time()
        while True:
            kind, result = await self._receive(self.silence_s)
            if kind == FrameKind.DONE:
                return result
            if self._heard_at - begun > STEP_S:  # no beat is late without a loss
                raise DeviceLostError(f"a step took longer than {STEP_S:g} s")

    async def _send(self, data: bytes) -> None:
        """Hand frames over; what keeps them from the child shows when an answer is wanted."""
        try:
            if self._child is None:
                raise DeviceLostError("it was gone before")
            if self._unsent is None:
                await self._child.send(data)
        except LOST as error:
            self._unsent = error

    async def _receive(self, silence_s: float) -> tuple[int, bytes]:
        """Return the child's next frame. Raises DeviceLostError once it is silent for too long."""
        assert self._child is not None
        process_id = self._child.process_id
        heard_s = before_s = cpu_time(process_id)  # no file: this is done in every round
        has_warned = False
        while True:
            for _ in range(2):  # one that was stopped itself has what was sent meanwhile to read
                with anyio.move_on_after(silence_s / 2):
                    received = await self._child.receive()
                    self._heard_at = anyio.current_time()
                    return received
            now = process_activity(process_id)
            if now is None or not is_starved(heard_s, before_s, now, silence_s):
                raise DeviceLostError(f"no sign of life for {silence_s:g} s")
            if not has_warned:
                log.warning("the machine is overloaded: a model process is waited for")
            has_warned, before_s = True, now.cpu_s
