"""The other ranks of a model, as rank 0 sees them: processes that it starts, feeds and watches.

    engine ── rounds ──> rank 0 ── batches ──> ranks 1, 2, ...     hidden states and columns among
                            ^                        │            themselves, in memory all map
                            └──── ready, beats ──────┘

A rank that is lost takes the group with it: nobody can compute without its columns.
"""

import json
import select
import subprocess
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Event, Lock, Thread
from typing import cast

from draftwerk.machine.child_python import OWN_SESSION, child_environment, python_command
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import HEADER, FrameKind, OnProgress, frame

SILENCE_S = 8.0
"""A rank that does not beat for this long is stopped or stuck."""
LOADING_SILENCE_S = 60.0
LOADING_S = 600.0
COMMAND = ("draftwerk.model.process.worker", "rank")


class RankLostError(ValueError):
    """Another rank is gone, and with it what only it had."""


def nothing_to_stop() -> None:
    """The stop of a group whose memory is not made yet."""


@dataclass(slots=True)
class OtherRank:
    """One of the other processes."""

    rank: int
    process: "subprocess.Popen[bytes]"
    answered: Event = field(default_factory=Event)
    """Set once it is ready, refused the model or is gone."""
    refusal: str = ""

    @property
    def output(self) -> FileIO:
        return cast("FileIO", self.process.stdout)

    def read(self, count: int) -> bytes:
        """Return so many bytes of its output, or fewer once it has ended."""
        data = b""
        while len(data) < count and (more := self.output.read(count - len(data))):
            data += more
        return data


class RankGroup:
    """All ranks but this one."""

    def __init__(self, report: OnProgress = lambda _: None) -> None:
        self._report = report
        self._others: list[OtherRank] = []
        self._lock = Lock()
        self._lost = ""
        self._stop_waiting: Callable[[], None] = nothing_to_stop
        self._on_loss: Callable[[str], None] = lambda _: None

    def rendezvous(self) -> Path:
        """Return an empty file, for this group alone."""
        folder = Path(mkdtemp(prefix="draftwerk-ranks-"))
        weakref.finalize(self, rmtree, folder, ignore_errors=True)
        return folder / "store"

    def keep(self, memory: SharedMemory) -> int:
        """Return the descriptor of memory that ends with the group."""
        weakref.finalize(self, memory.close)
        return memory.descriptor

    def start(self, options: Mapping[int, Mapping[str, object]], keeps: tuple[int, ...]) -> None:
        """Start the ranks, each with its options; they find the descriptors open as they are."""
        for rank, told in options.items():
            process = subprocess.Popen(
                python_command(*COMMAND, json.dumps(told)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=child_environment(),
                pass_fds=keeps,
                start_new_session=OWN_SESSION,
            )
            self._others.append(OtherRank(rank, process))
        weakref.finalize(self, _end, [other.process for other in self._others])
        for other in self._others:
            Thread(target=_listen, args=(weakref.ref(self), other), daemon=True).start()

    @property
    def process_ids(self) -> dict[int, int]:
        """The other processes' ids by rank."""
        return {other.rank: other.process.pid for other in self._others}

    def wait_until_ready(self) -> None:
        """Raises Refused if a rank cannot serve the model, RankLostError if it is gone."""
        for other in self._others:
            other.answered.wait(LOADING_S)
            if other.refusal:
                raise Refused(f"rank {other.rank}: {other.refusal}")
            self._check()

    def stops_with(self, stop_waiting: Callable[[], None]) -> None:
        """Say what ends this rank's own waiting for the others."""
        self._stop_waiting = stop_waiting
        if self._lost:
            stop_waiting()

    def on_loss(self, then: Callable[[str], None]) -> None:
        """Say what is done once a rank is lost, from a thread of its own."""
        self._on_loss = then
        if self._lost:
            then(self._lost)

    def send(self, payload: bytes) -> None:
        """Have all other ranks compute a batch. Raises RankLostError."""
        data = frame(FrameKind.WORK, payload)
        for other in self._others:
            try:
                _write(cast("FileIO", other.process.stdin), data)
            except (OSError, ValueError) as error:  # broken, or closed by now
                self.lose(f"rank {other.rank} takes nothing in: {error}")
        self._check()

    def lose(self, why: str) -> None:
        """Note that the group is of no use any more, and end its processes."""
        with self._lock:
            if self._lost:
                return
            self._lost = why
        for other in self._others:
            other.process.kill()
        self._on_loss(why)  # a process that ends now says why, and nothing else
        self._stop_waiting()
        _end([other.process for other in self._others])
        for other in self._others:
            other.answered.set()

    def _check(self) -> None:
        if self._lost:
            raise RankLostError(self._lost)

    def heard(self, other: OtherRank, kind: int, payload: bytes) -> None:
        """Take one frame of a rank's."""
        if kind == FrameKind.LOADING and not other.answered.is_set():
            self._report(f"rank {other.rank}: {payload.decode(errors='replace')}")
        elif kind == FrameKind.REFUSED:
            other.refusal = payload.decode(errors="replace")
            other.answered.set()
        elif kind == FrameKind.READY:
            other.answered.set()


def _listen(group_: "weakref.ref[RankGroup]", other: OtherRank) -> None:
    """Take a rank's frames until it ends or is silent for too long."""
    with other.output:
        why = _heard_until_lost(group_, other)
    if (group := group_()) is not None and not other.refusal:
        group.lose(why)


def _heard_until_lost(group_: "weakref.ref[RankGroup]", other: OtherRank) -> str:
    """Return why nothing more will be heard of a rank."""
    why = f"rank {other.rank} (process {other.process.pid}) ended"
    while True:
        silence_s = SILENCE_S if other.answered.is_set() else LOADING_SILENCE_S
        if not select.select([other.output], [], [], silence_s)[0]:
            return f"rank {other.rank} (process {other.process.pid}) gave no sign for {silence_s} s"
        header = other.read(HEADER.size)
        if len(header) < HEADER.size:
            return why
        kind, length = HEADER.unpack(header)
        payload = other.read(length)
        group = group_()
        if group is None:
            return why
        group.heard(other, kind, payload)
        del group


def _write(pipe: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[pipe.write(view) :]


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        with suppress(OSError):  # what it did not read is still to be flushed
            cast("FileIO", process.stdin).close()
