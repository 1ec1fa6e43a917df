"""Frames to and from a child process, over two pipes that never block the event loop."""

import os
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from draftwerk.speculative.protocol.frames import HEADER

READ_MAX = 2**20


@dataclass(slots=True)
class FramePipe:
    """The parent's ends; the child has the other two as its standard input and output."""

    inbox: int
    """The descriptor to read from."""
    outbox: int
    """The descriptor to write to."""
    _buffer: bytearray = field(default_factory=bytearray)

    @classmethod
    def make(cls) -> tuple["FramePipe", int, int]:
        """Return a pipe, and the child's ends: what it reads from, and what it writes to."""
        child_reads, outbox = os.pipe()
        inbox, child_writes = os.pipe()
        os.set_blocking(inbox, False)
        os.set_blocking(outbox, False)
        return cls(inbox, outbox), child_reads, child_writes

    async def send(self, data: bytes) -> None:
        """Write everything; raises OSError if the child is gone."""
        left = memoryview(data)[self.send_nowait(data) :]
        while left:
            await anyio.wait_writable(self.outbox)
            left = left[self.send_nowait(left) :]

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Write what there is room for, and return how much it was; raises OSError if the child is
        gone."""
        try:
            return os.write(self.outbox, data)
        except BlockingIOError:
            return 0

    async def receive(self) -> tuple[int, bytes]:
        """Return the next frame's kind and payload; raises EndOfStream if the child is gone."""
        while (found := self._take()) is None:
            await anyio.wait_readable(self.inbox)
            self._read()
        return found

    def poll(self) -> int:
        """Take every frame that is there, without waiting; returns how many there were."""
        self._read()
        count = 0
        while self._take() is not None:
            count += 1
        return count

    def close(self) -> None:
        os.close(self.inbox)
        os.close(self.outbox)

    def _read(self) -> None:
        """Read what is there; raises EndOfStream if the child is gone."""
        with suppress(BlockingIOError):
            data = os.read(self.inbox, READ_MAX)
            if not data:
                raise anyio.EndOfStream
            self._buffer += data

    def _take(self) -> tuple[int, bytes] | None:
        """Return the frame at the head of the buffer, if it is whole."""
        if len(self._buffer) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self._buffer)
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[HEADER.size : end])
        del self._buffer[:end]
        return kind, payload
