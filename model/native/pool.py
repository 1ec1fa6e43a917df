"""The threads that native calls run on."""

import os
import weakref

from draftwerk.model.native.library import library


class Pool:
    """A fixed number of threads, the caller's included; idle ones sleep."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self.handle: int = library().pool_create(self.threads)
        weakref.finalize(self, library().pool_destroy, self.handle)
