"""The threads that native calls run on."""

import os
import weakref

from draftwerk.model.native.library import library


class Pool:
    """A fixed number of threads, the caller's included; idle ones sleep.

    `isa` names the instruction set of what runs on them, by default the one to be used here.
    """

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self.library = library(isa)
        self.handle: int = self.library.pool_create(self.threads)
        weakref.finalize(self, self.library.pool_destroy, self.handle)
