"""A model process: reads work from its standard input, does it, writes the result, and beats.

Run by the server as `python -m draftwerk.model.process.worker ROLE OPTIONS`, with OPTIONS as JSON.
It ends when its input does, and the kernel ends it when its parent dies.
"""

import gc
import os
import signal
import sys
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import sleep
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from draftwerk.machine.host import (
    die_with_parent,
    lower_priority,
    return_freed_memory,
    reuse_freed_memory,
)
from draftwerk.speculative.protocol.frames import HEADER, FrameKind, encode, frame

if TYPE_CHECKING:
    from draftwerk.model.process.role import ModelWorker
    from draftwerk.model.text.grammar import Grammars

BEAT_S = 1.0
CHECK_S = 5.0
"""Without work, after some, until what the model knows is checked."""

_RESET, _END = object(), object()
"""Between the threads: forget every sequence; there is no more to come."""


class Pipe:
    """The way back to the parent; whole frames, from any thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = Lock()

    def send(self, kind: FrameKind, payload: bytes = b"") -> None:
        """Send a frame; the process ends where the server has gone, as after Ctrl-C."""
        with self._lock:
            try:
                self._file.write(frame(kind, payload))
                self._file.flush()
            except OSError:
                os._exit(1)

    def beat(self) -> None:
        """Beat until the server is gone."""
        while True:
            sleep(BEAT_S)
            self.send(FrameKind.BEAT)


def main(role: str, options: str) -> None:
    die_with_parent()
    run(role, options.encode())


def run(role: str, options: bytes, grammars: "Grammars | None" = None) -> None:
    """Be a model process until the input ends; see `build_role` for the grammars."""
    # Nothing else may write to the pipe: whatever prints, prints to standard error.
    results, work = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, who ends us in order.
    pipe = Pipe(results)
    Thread(target=pipe.beat, daemon=True).start()

    gc.disable()  # for a seventh of the time that importing takes
    from draftwerk.model.checkpoint.unsupported import Refused
    from draftwerk.model.process.role import build_role  # torch: seconds, so the beat comes first

    gc.enable()
    try:
        model = build_role(
            role, options, lambda line: pipe.send(FrameKind.LOADING, line.encode()), grammars
        )
    except Refused as error:
        pipe.send(FrameKind.REFUSED, str(error).encode())
        return
    if model.group is not None:
        model.group.on_loss(end)
    # What is loaded stays: the collector need not look at it again in the middle of a step.
    gc.collect()
    gc.freeze()
    return_freed_memory()
    reuse_freed_memory()
    lower_priority()
    pipe.send(FrameKind.READY, encode(model.ready))
    serve(work, pipe, model, CHECK_S)


def end(why: str) -> None:
    """End the process at once, whatever it is doing: without its other ranks it can do nothing."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def serve(work: BinaryIO, pipe: Pipe, model: "ModelWorker", check_s: float) -> None:
    """Answer every WORK frame with a DONE frame, until the input ends.

    A thread reads the next one while a step is computed. The answer leaves before the next step
    begins: while that is drafted for, on one core, the parent works on another.

    Once no work has come for `check_s` seconds after some, the model is checked. A failure ends the
    process, as that of a step does.
    """
    # Holds what the parent has under way: two rounds and a reset at most.
    arrived: SimpleQueue[object] = SimpleQueue()
    Thread(target=_read, args=(work, model.work_type, arrived), daemon=True).start()
    unchecked = False
    while True:
        try:
            # Once checked it waits without end: an idle server shall not wake up for nothing.
            message = arrived.get(timeout=check_s if unchecked else None)
        except Empty:
            model.check()
            unchecked = False
            continue
        if message is _END:
            return
        if message is _RESET:
            model.reset()
        else:
            pipe.send(FrameKind.DONE, encode(model.step(message)))
            unchecked = True


def _read(work: BinaryIO, kind_of_work: type, arrived: "SimpleQueue[object]") -> None:
    """Decode frames until the input ends."""
    decoder = msgspec.msgpack.Decoder(kind_of_work)
    try:
        while header := work.read(HEADER.size):
            kind, length = HEADER.unpack(header)
            payload = work.read(length)
            arrived.put(_RESET if kind == FrameKind.RESET else decoder.decode(payload))
    # After a frame that cannot be read as well: then the process ends, and another is started.
    finally:
        arrived.put(_END)


if __name__ == "__main__":
    main(*sys.argv[1:])
