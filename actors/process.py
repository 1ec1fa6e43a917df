"""A device in a process of its own: its crash, its memory and its GIL are not the server's."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import anyio
from anyio.abc import Process

from actors.device import DeviceLostError
from actors.frame_pipe import FramePipe
from speculative.wire import Kind, Ready, decode, encode, frame

W = TypeVar("W")
R = TypeVar("R")
Report = Callable[[str], None]

SILENCE_S = 8.0
"""A process beats every second; one that is silent for this long is stopped or stuck."""
STEP_S = 120.0
"""No step takes this long: one that does hangs, though its process beats."""
LOAD_S = 600.0
LOST = (
    OSError,
    DeviceLostError,
    anyio.EndOfStream,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
)


class ModelRefusedError(Exception):
    """The model cannot be served with these options; says why."""


class ProcessDevice(Generic[W, R]):
    """Runs a model in a child process, and runs the child again after it was lost."""

    def __init__(
        self, command: Sequence[str], result_type: type[R], silence_s: float = SILENCE_S
    ) -> None:
        self._command = command
        self._result_type = result_type
        self._silence_s = silence_s
        self._process: Process | None = None
        self._pipe: FramePipe | None = None
        self._stale = False
        """Whether the child knows sequences of an earlier pipeline."""
        self._one_at_a_time = anyio.Lock(fast_acquire=True)

    @property
    def process_id(self) -> int | None:
        """The child's, while there is one."""
        return None if self._process is None else self._process.pid

    async def start(self, report: Report = lambda _: None) -> Ready:
        """Start the child and wait until it can work; `report` gets its progress lines.

        Raises ModelRefusedError, and DeviceLostError if it dies before.
        """
        self._pipe, child_reads, child_writes = FramePipe.make()
        try:
            self._process = await anyio.open_process(
                self._command, stdin=child_reads, stdout=child_writes, stderr=None
            )
        finally:
            os.close(child_reads)
            os.close(child_writes)
        self._stale = False
        try:
            return await self._wait_until_ready(report)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.close()
            if isinstance(error, LOST):
                raise DeviceLostError(f"the model process died: {error!r}") from error
            raise

    async def _wait_until_ready(self, report: Report) -> Ready:
        with anyio.move_on_after(LOAD_S):
            while True:
                kind, payload = await self._receive()
                if kind == Kind.READY:
                    return decode(payload, type=Ready)
                if kind == Kind.REFUSED:
                    raise ModelRefusedError(payload.decode())
                if kind == Kind.LOADING:
                    report(payload.decode())
        raise DeviceLostError(f"the model took longer than {LOAD_S:g} s to load")

    def fresh(self) -> "ProcessDevice[W, R]":
        """Return the device for a new pipeline: it will have forgotten every sequence."""
        self._stale = True
        return self

    async def run(self, work: W) -> R:
        """Do one step. A step that has begun is never abandoned, only its process is."""
        async with self._one_at_a_time:
            try:
                result = await self._shielded(encode(work))
            except LOST as error:
                with anyio.CancelScope(shield=True):
                    await self.close()
                raise DeviceLostError(f"the model process was lost: {error!r}") from error
        return decode(result, type=self._result_type)

    async def _shielded(self, payload: bytes) -> bytes:
        with anyio.CancelScope(shield=True):
            if self._process is None:
                await self.start()
            with anyio.move_on_after(STEP_S):
                return await self._step(payload)
        raise DeviceLostError(f"a step took longer than {STEP_S:g} s")

    async def revive(self) -> None:
        """Start the child again if it is gone."""
        async with self._one_at_a_time:
            if self._process is None:
                await self.start()

    async def close(self) -> None:
        """End the child, if there is one."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()

    async def _step(self, payload: bytes) -> bytes:
        assert self._pipe is not None
        begin = frame(Kind.RESET) if self._stale else b""
        self._stale = False
        await self._pipe.send(begin + frame(Kind.WORK, payload))
        while True:
            kind, result = await self._receive()
            if kind == Kind.DONE:
                return result

    async def _receive(self) -> tuple[int, bytes]:
        """Return the child's next frame. Raises DeviceLostError once it is silent for too long."""
        assert self._pipe is not None
        with anyio.move_on_after(self._silence_s):
            return await self._pipe.receive()
        raise DeviceLostError(f"no sign of life for {self._silence_s:g} s")
