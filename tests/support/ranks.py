"""A model's ranks as threads of one process: the same shared memory, none of the processes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from draftwerk.machine.shared_memory import SharedMemory, mapped
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.shard import Grid, shard_of
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.ranks.native_stage import NativeStage
from draftwerk.model.ranks.seats import group_bytes, take_seats


@dataclass
class ThreadRanks:
    """A `Forward` over ranks that are threads."""

    stages: Sequence[NativeStage]

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        with ThreadPoolExecutor(len(self.stages)) as threads:
            results = [threads.submit(stage, batch, pages) for stage in self.stages]
            first, *_ = [result.result() for result in results]
            return first


def thread_ranks(directory: Path, grid: Grid, dtype: str, kv_dtype: str = "auto") -> ThreadRanks:
    """Return a model divided among threads."""
    stages: list[NativeStage] = []
    memory = None
    for rank in range(grid.size):
        config = load(str(directory), None).config
        shard = shard_of(config, grid, rank)
        model = load(str(directory), None, shard=shard)
        memory = memory or SharedMemory.make(group_bytes(config, grid))
        seats = take_seats(mapped(memory.descriptor), config, grid, rank)
        forward = NativeForward(
            config, model.weights, dtype, Pool(1), kv_dtype, None, shard, seats.columns
        )
        stages.append(NativeStage(forward, shard, seats))
    assert memory is not None
    memory.close()
    return ThreadRanks(stages)
