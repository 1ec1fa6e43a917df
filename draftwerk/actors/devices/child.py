"""A child process that exchanges frames with its parent."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.abc import Process

from draftwerk.actors.devices.frame_pipe import FramePipe
from draftwerk.machine.child_python import OWN_SESSION, child_environment


class Child(Protocol):
    """One life of a model process, as its device sees it."""

    @property
    def process_id(self) -> int: ...

    async def send(self, data: bytes) -> None:
        """Write whole frames; raises OSError if the child is gone."""
        ...

    async def receive(self) -> tuple[int, bytes]:
        """Return the next frame's kind and payload; raises EndOfStream if the child is gone."""
        ...

    def poll(self) -> int:
        """Take every frame that is there, without waiting; returns how many there were.

        Raises EndOfStream if the child is gone.
        """
        ...

    async def close(self) -> None:
        """End the child, whatever it is doing."""
        ...


@dataclass(slots=True)
class PipedChild:
    """A process with a pipe as its standard input and another as its standard output."""

    pipe: FramePipe

    async def send(self, data: bytes) -> None:
        await self.pipe.send(data)

    async def receive(self) -> tuple[int, bytes]:
        return await self.pipe.receive()

    def poll(self) -> int:
        return self.pipe.poll()


@dataclass(slots=True)
class ProcessChild(PipedChild):
    """One that this process has started."""

    process: Process

    @property
    def process_id(self) -> int:
        return self.process.pid

    async def close(self) -> None:
        self.pipe.close()
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.aclose()


async def spawn(command: Sequence[str], descriptors: Sequence[int] = ()) -> ProcessChild:
    """Start a command with this process's own package on its import path; raises OSError.

    It finds each of the descriptors open under the same number.
    """
    pipe, child_reads, child_writes = FramePipe.make()
    try:
        process = await anyio.open_process(
            command,
            stdin=child_reads,
            stdout=child_writes,
            stderr=None,
            env=child_environment(),
            pass_fds=descriptors,
            start_new_session=OWN_SESSION,
        )
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(child_reads)
        os.close(child_writes)
    return ProcessChild(pipe, process)
