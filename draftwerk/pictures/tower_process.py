"""The process that reads pictures: what decodes a stranger's file, and what may be killed.

Run by the server as `python -m draftwerk.pictures.tower_process OPTIONS`, with OPTIONS as JSON; it
speaks as model processes do.
"""

import os
import resource
import signal
import sys
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec

from draftwerk.machine.host import die_with_parent, lower_priority, return_freed_memory
from draftwerk.model.process.worker import Pipe, serve
from draftwerk.pictures.tower_messages import PictureRead, PictureWork, TowerOptions
from draftwerk.speculative.protocol.frames import FrameKind, Ready, encode

if TYPE_CHECKING:
    from draftwerk.pictures.tower import Tower

MORE_BYTES = 6 * 2**30
"""Address space, beyond what the loaded tower has."""
CHECK_S = 3600.0


@dataclass(slots=True)
class TowerWorker:
    """A tower as the loop of a model process meets it."""

    tower: "Tower"
    work_type: type[PictureWork] = PictureWork

    def reset(self) -> None:
        """Do nothing: a tower knows no texts."""

    def check(self) -> None:
        """Do nothing, likewise."""

    def step(self, work: Any) -> PictureRead:
        """Read a picture; the memory that this took is given back."""
        try:
            return self.tower.read(work)
        except MemoryError:
            return PictureRead(fault="it takes more memory than a picture may")
        finally:
            return_freed_memory()


def main(options: str) -> None:
    """Read pictures until the server is gone."""
    die_with_parent()
    results, work = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(results)
    Thread(target=pipe.beat, daemon=True).start()
    lower_priority()  # texts go on meanwhile
    try:
        worker: Any = TowerWorker(loaded(options))
    except Exception as error:
        pipe.send(FrameKind.REFUSED, f"{type(error).__name__}: {error}".encode())
        return
    limit_memory()
    pipe.send(FrameKind.READY, encode(Ready(device="cpu", attention="", exact=False)))
    serve(work, pipe, worker, CHECK_S)


def loaded(options: str) -> "Tower":
    """Return the tower that options name."""
    from draftwerk.pictures.tower import Tower  # torch: seconds, so the beat comes first

    return Tower(msgspec.json.decode(options, type=TowerOptions))


def limit_memory() -> None:
    """Have what a picture unpacks to fail, rather than the machine."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + MORE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
