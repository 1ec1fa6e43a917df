"""Model processes forked from one that has imported torch: they are there in less time.

The fork server is a process of its own and holds no model. Where it is away or cannot fork, a
process is started the long way, and the fork server anew beside it.
"""

import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio.abc import Process

from draftwerk.actors.devices.child import Child, PipedChild
from draftwerk.actors.devices.frame_pipe import FramePipe
from draftwerk.machine.child_python import OWN_SESSION, child_environment
from draftwerk.speculative.protocol.forks import ORDER_MAX, Forked, ForkedModel, Order

PAUSE_S, PAUSE_MAX_S = 0.5, 60.0
"""Between two starts of a fork server that ends, and at most, where it ends at once each time."""
ANSWER_S = 30.0
"""For a fork; a fork server that was just started imports first."""

log = logging.getLogger("draftwerk")


def can_fork() -> bool:
    """Return whether this system has what a fork server needs: descriptors of processes."""
    return hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")


@dataclass(slots=True)
class ForkedChild(PipedChild):
    """One life of a model process that the fork server forked."""

    process_id: int
    ending: int
    """A descriptor of the process itself: its id may be another's one day."""

    async def close(self) -> None:
        """Kill the process, and wait until it has ended: it writes to no page after that."""
        self.pipe.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.ending, signal.SIGKILL)
        await anyio.wait_readable(self.ending)
        os.close(self.ending)


@dataclass(slots=True)
class ForkServer:
    """The fork server's process, as the server sees it."""

    command: Sequence[str]
    model: ForkedModel | None = None
    """Whose processes it is to fork; it prepares for none in particular without."""
    _process: Process | None = None
    _socket: socket.socket | None = None
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process; it imports while others go on. Raises OSError."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            self._process = await anyio.open_process(
                self.command,
                stdin=its.fileno(),
                stdout=None,
                stderr=None,
                env=child_environment(),
                start_new_session=OWN_SESSION,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        self._socket = ours
        if self.model is not None:
            self.prepare(self.model)

    def prepare(self, model: ForkedModel) -> None:
        """Have tables of a model's tokens made while others go on. Raises OSError."""
        self.model = model
        if self._socket is not None:
            self._socket.send(msgspec.json.encode(model))

    async def spawn(
        self, order: Order, descriptors: Sequence[int], otherwise: Callable[[], Awaitable[Child]]
    ) -> Child:
        """Return a forked process, or what `otherwise` starts. Raises OSError."""
        try:
            async with self._one_at_a_time:
                return await self._fork(order, descriptors)
        except (OSError, anyio.EndOfStream, msgspec.MsgspecError) as error:
            log.warning("a model process is started the long way: %s", error)
        child = await otherwise()
        await self._restart()
        return child

    async def watch(self, pause_s: float = PAUSE_S) -> None:
        """Start the process again whenever it ends, sooner or later by how long it lived."""
        pause = pause_s
        while True:
            process, begun_s = self._process, anyio.current_time()
            if process is not None:
                await process.wait()
            lived_s = anyio.current_time() - begun_s
            pause = pause_s if lived_s > PAUSE_MAX_S else min(2 * pause, PAUSE_MAX_S)
            if self._process is process:  # nobody has replaced it meanwhile
                log.warning("the process that forks model processes has ended: another is started")
                await self._restart()
            await anyio.sleep(pause)

    async def close(self) -> None:
        """End the process; what it forked goes on."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is not None:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.aclose()

    async def _restart(self) -> None:
        async with self._one_at_a_time:
            await self.close()
            with suppress(OSError):
                await self.start()

    async def _fork(self, order: Order, descriptors: Sequence[int]) -> ForkedChild:
        if self._socket is None:
            raise OSError("there is no fork server")
        pipe, reads, writes = FramePipe.make()
        try:
            message = msgspec.json.encode(order)
            socket.send_fds(self._socket, [message], [reads, writes, *descriptors])
            with anyio.fail_after(ANSWER_S):
                await anyio.wait_readable(self._socket)
            answer, (ending,) = _answer(self._socket)
        except TimeoutError:
            pipe.close()
            raise OSError("the fork server does not answer") from None
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(reads)
            os.close(writes)
        return ForkedChild(pipe, answer.process_id, ending)


def _answer(fork_server: socket.socket) -> tuple[Forked, tuple[int]]:
    """Return what the fork server has answered. Raises OSError and EndOfStream."""
    data, descriptors, _, _ = socket.recv_fds(fork_server, ORDER_MAX, 1)
    if not data:
        raise anyio.EndOfStream
    answer = msgspec.json.decode(data, type=Forked)
    if not answer.process_id or len(descriptors) != 1:
        raise OSError(answer.error or "the fork server forked nothing")
    return answer, (descriptors[0],)
