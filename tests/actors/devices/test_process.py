"""A device whose child is heard late, since this process itself stood still."""

import asyncio
import os
import time
from dataclasses import dataclass, field

import anyio
import pytest

from draftwerk.actors.devices.child import PipedChild
from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.frame_pipe import FramePipe
from draftwerk.actors.devices.process import ProcessDevice
from draftwerk.speculative.protocol.frames import FrameKind, Ready, encode, frame

SILENCE_S = 0.6


@dataclass(slots=True)
class Standing:
    """A child that answers its work while the event loop of its parent stands still."""

    pipe: FramePipe
    outbox: int
    answers: bool = True
    process_id: int = 0
    received: list[bytes] = field(default_factory=list[bytes])

    async def send(self, data: bytes) -> None:
        self.received.append(data)

    async def receive(self) -> tuple[int, bytes]:
        if self.received:
            self.received.clear()
            time.sleep(1.1 * SILENCE_S)  # noqa: ASYNC251 - it stands still
            if self.answers:  # timers that are due come before what is to be read
                answer = frame(FrameKind.DONE, encode(7))
                asyncio.get_running_loop().call_later(0.01, os.write, self.outbox, answer)
        return await PipedChild(self.pipe).receive()

    def poll(self) -> int:
        return self.pipe.poll()

    async def close(self) -> None:
        pass


async def started(answers: bool) -> ProcessDevice[int, int]:
    pipe, _, outbox = FramePipe.make()
    child = Standing(pipe, outbox, answers)
    os.write(outbox, frame(FrameKind.READY, encode(Ready(device="cpu", attention="", exact=True))))

    async def spawn() -> Standing:
        return child

    device = ProcessDevice[int, int](spawn, int, SILENCE_S)
    await device.start()
    return device


async def test_what_came_while_this_process_stood_still_is_heard() -> None:
    device = await started(answers=True)
    await device.send(3)
    assert await device.receive() == 7


async def test_silence_behind_it_is_a_loss() -> None:
    device = await started(answers=False)
    begun = anyio.current_time()
    await device.send(3)
    with pytest.raises(DeviceLostError, match="no sign of life"):
        await device.receive()
    assert anyio.current_time() - begun >= SILENCE_S
