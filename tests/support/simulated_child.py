"""A model process on virtual time: what it does with each frame, and how it fails at each kind.

It answers through frames like a real one, so the device that watches it is the server's own.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import anyio
import msgspec

from draftwerk.actors.devices.process import BEAT_S
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.protocol.frames import HEADER, FrameKind, Ready, encode, frame
from tests.support.toy import KilledError

READY = Ready(device="cpu", attention="toy", exact=True)
FAULTS = (
    "dies before it is ready",
    "hangs while it loads",
    "refuses for a moment",
    "says nonsense when ready",
    "dies of its work",
    "dies in the middle of its work",
    "dies with the result",
    "hangs at work",
    "beats, but never ends",
    "answers nonsense",
    "answers half a frame",
    "dies while idle",
    "hangs while idle",
)
LOADING, IDLE = FAULTS[:4], FAULTS[11:]
WORKING = FAULTS[4:11]
WRITES_MAX = 30
"""Of a process that dies in the middle of its work."""
LATE_S = (0.5, 3.0)


@runtime_checkable
class Mortal(Protocol):
    """A model that may end in the middle of its work."""

    dies_after: int | None
    """Writes, or stages, that are left to it."""

    def known_counts(self) -> dict[int, int]:
        """Return how many tokens it knows of each sequence."""
        ...


@dataclass
class Fate:
    """Decides, from a seed, which process fails when and how; shared by all restarts of one
    process."""

    rng: random.Random
    chance: float
    """Of a fault in one piece of work."""
    losses_max: int
    late: float = 0.0
    """The chance that a step takes seconds."""
    happened: Counter[str] = field(default_factory=Counter[str])

    def draws(self, kinds: tuple[str, ...], chance: float) -> str:
        """Return a fault, or "" if there is none this time."""
        if self.happened.total() >= self.losses_max or self.rng.random() >= chance:
            return ""
        fault = self.rng.choice(kinds)
        self.happened[fault] += 1
        return fault


@dataclass
class SimulatedChild:
    """One run of a process: frames to send, each at its time on the virtual clock."""

    fate: Fate
    make: Callable[[], Callable[[Any], object]]
    """Returns a model without any sequence."""
    work_type: type
    process_id: int = 0
    silent_from: float = float("inf")
    """It hangs from then on."""
    dead_from: float = float("inf")
    step: Callable[[Any], object] = field(init=False)
    queued: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])
    """The frames still to be sent, in order of time."""
    beat_at: float = 0.0
    busy_until: float = 0.0
    """When the last piece of work that it was sent is done."""
    buffer: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.step = self.make()
        now = anyio.current_time()
        self.beat_at = now + BEAT_S
        ready_at = now + self.fate.rng.uniform(0.0, 0.3)
        queued = frame(FrameKind.READY, encode(READY))
        match self.fate.draws(LOADING, self.fate.chance):
            case "dies before it is ready":
                self.dead_from = ready_at
            case "hangs while it loads":
                self.silent_from = ready_at
            case "refuses for a moment":
                queued = frame(FrameKind.REFUSED, b"out of memory, say")
            case "says nonsense when ready":
                queued = frame(FrameKind.READY, b"\xc1")
            case _:
                pass
        self.queued = [
            (now, frame(FrameKind.LOADING, b"reading")),
            (ready_at, queued),
        ]
        fault = self.fate.draws(IDLE, self.fate.chance)
        if fault:
            moment = ready_at + self.fate.rng.expovariate(2.0)
            if fault == "dies while idle":
                self.dead_from = min(self.dead_from, moment)
            else:
                self.silent_from = min(self.silent_from, moment)

    async def send(self, data: bytes) -> None:
        """Take frames in, as far as a process that hangs still does."""
        await anyio.lowlevel.checkpoint()
        if anyio.current_time() >= self.dead_from:
            raise BrokenPipeError
        while data:
            kind, length = HEADER.unpack_from(data)
            payload = data[HEADER.size : HEADER.size + length]
            data = data[HEADER.size + length :]
            if kind == FrameKind.RESET:
                self.step = self.make()
            else:
                assert kind == FrameKind.WORK
                self._work(payload)

    def _work(self, payload: bytes) -> None:
        now = max(anyio.current_time(), self.busy_until)
        if now >= min(self.silent_from, self.dead_from):
            return  # it never gets to this work
        rng = self.fate.rng
        done_at = now + rng.uniform(0.001, 0.02)
        if rng.random() < self.fate.late:
            done_at += rng.uniform(*LATE_S)
        self.busy_until = done_at
        fault = self.fate.draws(WORKING, self.fate.chance)
        if fault == "dies of its work":
            self.dead_from = min(self.dead_from, done_at)
            return
        if fault == "dies in the middle of its work":
            self.dead_from = min(self.dead_from, done_at)
            self.die_within(msgspec.msgpack.decode(payload, type=self.work_type), rng)
            return
        answer = partial(self._answer, payload)
        match fault:
            case "dies with the result":
                self.dead_from = min(self.dead_from, done_at)
            case "hangs at work":
                self.silent_from = min(self.silent_from, done_at)
            case "beats, but never ends":
                self.busy_until = float("inf")
                return
            case "answers nonsense":
                answer = partial(self._answer, payload, b"\xc1")
            case "answers half a frame":
                self._answer(payload)  # it did the work: what is behind it may be done too
                self.dead_from = min(self.dead_from, done_at + 0.001)
                return
            case _:
                pass
        self.queued.append((done_at, answer()))

    def _answer(self, payload: bytes, head: bytes = b"") -> bytes:
        """Do the work; returns the frame with its result."""
        work = msgspec.msgpack.decode(payload, type=self.work_type)
        return frame(FrameKind.DONE, head + encode(self.step(work)))

    def _check(self) -> None:
        """Check what the model knows, as a process does without work."""
        rounds = getattr(self.step, "__self__", None)
        if isinstance(rounds, DraftingStep):
            target = getattr(rounds.verify, "__self__", None)
            assert isinstance(target, Mortal)
            rounds.check(target.known_counts())

    def die_within(self, work: object, rng: random.Random) -> None:
        """Do a part of the work, if the model can; whatever it wrote stays written."""
        model = getattr(self.step, "__self__", None)
        if isinstance(model, DraftingStep):
            model = getattr(model.verify, "__self__", None)
        if isinstance(model, Mortal):
            model.dies_after = rng.randint(0, WRITES_MAX)
            with suppress(KilledError):
                self.step(work)

    async def receive(self) -> tuple[int, bytes]:
        while True:
            now = anyio.current_time()
            if now >= self.dead_from:
                raise anyio.EndOfStream
            if (taken := self._take(now)) is not None:
                return taken
            coming = [self.beat_at, *(moment for moment, _ in self.queued)]
            moments = [moment for moment in coming if moment < self.silent_from]
            await anyio.sleep(min([self.dead_from, *moments]) - now)

    def poll(self) -> int:
        now = anyio.current_time()
        if now >= self.dead_from:
            raise anyio.EndOfStream
        count = 0
        while self._take(now) is not None:
            count += 1
        return count

    def _take(self, now: float) -> tuple[int, bytes] | None:
        """Return the next frame that is due."""
        if self.queued and self.queued[0][0] <= now and self.queued[0][0] < self.silent_from:
            queued = self.queued.pop(0)[1]
            return HEADER.unpack_from(queued)[0], queued[HEADER.size :]
        if self.beat_at <= now and self.beat_at < self.silent_from:
            if not self.queued and self.busy_until <= now:
                self._check()
            self.beat_at += BEAT_S
            return FrameKind.BEAT, b""
        return None

    async def close(self) -> None:
        self.dead_from = min(self.dead_from, anyio.current_time())
