"""A further rank of a divided model: reads batches from rank 0, computes its part, and beats.

Run by rank 0 as `python -m draftwerk.model.rank_worker OPTIONS`, with OPTIONS as JSON. It ends when
its input does, and the kernel ends it when rank 0 dies.
"""

import gc
import os
import signal
import sys
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO

from draftwerk.machine.host import die_with_parent, lower_priority
from draftwerk.model.worker import NICENESS, Pipe
from draftwerk.speculative.protocol.frames import HEADER, FrameKind

if TYPE_CHECKING:
    from draftwerk.model.build import BuiltRank


def main(options: str) -> None:
    die_with_parent()
    lower_priority(NICENESS)
    results, work = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(results)
    Thread(target=pipe.beat, daemon=True).start()

    from draftwerk.model.build import build_rank  # torch: seconds, so the beat comes first
    from draftwerk.model.checkpoint.unsupported import Refused

    try:
        part = build_rank(
            options.encode(), lambda line: pipe.send(FrameKind.LOADING, line.encode())
        )
    except Refused as error:
        pipe.send(FrameKind.REFUSED, str(error).encode())
        return
    gc.collect()
    gc.freeze()
    pipe.send(FrameKind.READY)
    serve(work, part)


def serve(work: BinaryIO, part: "BuiltRank") -> None:
    """Compute every batch, until the input ends or a rank is lost."""
    from draftwerk.model.ranks.rounds import decoded

    while header := work.read(HEADER.size):
        _, length = HEADER.unpack(header)
        batch, on_scratch = decoded(work.read(length))
        part.stage(batch, part.scratch if on_scratch else part.pages)


if __name__ == "__main__":
    main(*sys.argv[1:])
