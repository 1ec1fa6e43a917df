"""The way to processes in which strangers' files are read: a panic, a minute or a gigabyte ends one
of those and nothing else.

    server ──socket of its own──> a process for each template or tokenizer, with limits
       │                                   ^
       └──── asks for one ──> guard ──fork─┘      (has imported all that they need)
"""

import pickle
import socket
import subprocess
import weakref
from functools import cache
from threading import Lock

import msgspec

from draftwerk.machine.child_python import OWN_SESSION, child_environment, python_command

SIZE_BYTES = 8
ANSWER_MAX = 2**28
"""Bytes of an answer: a process that has gone wrong may write anything."""
MODULE = "draftwerk.model.text.guard_process"
BUSY = "the machine is busy"
START_S = 60.0
"""For the guard to have imported what it needs."""


class Limits(msgspec.Struct, frozen=True):
    """What one process may take."""

    cpu_s: float
    """For each answer."""
    memory_mib: int
    """The memory of addresses, beyond those that it begins with."""

    def __str__(self) -> str:
        return f"{self.cpu_s:g} s or {self.memory_mib} MiB"


class GuardedTask(msgspec.Struct, frozen=True):
    """What a process is made for."""

    kind: str
    limits: Limits
    about: tuple[object, ...]
    """Plain data."""


class ProcessEnded(OSError):
    """The process ended before it answered: by a limit, by a fault, or by others."""


class GuardedProcess:
    """One process: asked one thing after the other, by one thread at a time. It ends with this."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        weakref.finalize(self, connection.close)

    def ask(self, given: object, wait_s: float) -> bytes:
        """Return its answer. Raises ProcessEnded where none comes, and TimeoutError where none
        has come yet, behind which it is ended."""
        self.connection.settimeout(wait_s)
        try:
            send(self.connection, pickle.dumps(given))
            return receive(self.connection)
        except TimeoutError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise ProcessEnded(str(error)) from None

    def close(self) -> None:
        """Let it end."""
        self.connection.close()


class Guard:
    """Begins processes; is begun when first needed, and again where it was lost."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._end = lambda: None
        self._lock = Lock()

    def process(self, task: GuardedTask) -> GuardedProcess:
        """Return a new process. Raises OSError where there can be none."""
        ours, theirs = socket.socketpair()
        process = GuardedProcess(ours)
        with theirs, self._lock:
            try:
                self._hand_over(theirs)
            except OSError:  # it was killed: another takes its place
                self.end()
                self._hand_over(theirs)
        ours.settimeout(START_S)
        send(ours, pickle.dumps((task.kind, msgspec.to_builtins(task.limits), task.about)))
        return process

    def end(self) -> None:
        """Let it end, and all its processes with it; it begins again when it is needed."""
        self._end()
        self._control = None

    def _hand_over(self, connection: socket.socket) -> None:
        control = self._control or self._begin()
        socket.send_fds(control, [b"+"], [connection.fileno()])

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                python_command(MODULE, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**child_environment(), "TOKENIZERS_PARALLELISM": "false"},
                start_new_session=OWN_SESSION,
            )
        self._control = ours
        self._end = weakref.finalize(self, _ended, ours, process)
        return ours


def _ended(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait()


@cache
def guard() -> Guard:
    """Return the one of this process."""
    return Guard()


def send(connection: socket.socket, data: bytes) -> None:
    """Send bytes with their number before them."""
    connection.sendall(len(data).to_bytes(SIZE_BYTES, "little") + data)


def receive(connection: socket.socket) -> bytes:
    """Return what was sent. Raises OSError where the connection ends before, or it is too much."""
    size = int.from_bytes(_exactly(connection, SIZE_BYTES), "little")
    if size > ANSWER_MAX:
        raise ConnectionAbortedError("an answer is too long")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = connection.recv(min(size - len(data), 2**20))
        if not some:
            raise ConnectionResetError("the process has ended")
        data += some
    return bytes(data)
