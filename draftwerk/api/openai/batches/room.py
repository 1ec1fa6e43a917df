"""The room of files and batches in a server that was given a folder for them."""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp

from draftwerk.api.openai.batches.idle_turns import Turns, others_served
from draftwerk.api.openai.batches.kept_files import KeptFiles
from draftwerk.api.openai.batches.running import LINES_MAX, BatchRunner
from draftwerk.api.shared.state import ServerState
from draftwerk.settings.setting_fields import ConfigError


@dataclass(slots=True)
class BatchRoom:
    """Files and batches, and what works these off."""

    kept: KeptFiles
    lock: int
    """The folder's lock: no other server works off the same batches."""
    app: ASGIApp | None = field(default=None, init=False)
    """The server itself, behind its doors."""
    runner: BatchRunner | None = field(default=None, init=False)

    async def run(self, states: Sequence[ServerState]) -> None:
        """Work off batches until cancelled."""
        assert self.app is not None
        places = max(1, min(LINES_MAX, states[0].admission.places_max // 2))
        turns = Turns(lambda: others_served(states), asyncio.Semaphore(places))
        body_bytes = states[0].settings.body_bytes
        self.runner = BatchRunner(self.kept, self.app, turns, body_bytes)
        await self.runner.run()

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self.lock)


def batch_room(folder: str, now: Callable[[], float] = time.time) -> BatchRoom | None:
    """Return the room with a folder, None without one. Raises ConfigError."""
    if not folder:
        return None
    root = Path(folder)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"files: another server keeps its files in {root}") from None
    except OSError as error:
        raise ConfigError(f"files: {root}: {error.strerror}") from None
    return BatchRoom(KeptFiles(root, now), lock)


async def idle_work(room: BatchRoom | None, states: Sequence[ServerState]) -> None:
    """Work off batches, if there is a room for them, until cancelled."""
    if room is not None:
        await room.run(states)
