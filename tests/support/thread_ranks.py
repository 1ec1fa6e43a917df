"""A model's ranks as threads of one process: the same shared memory, none of the processes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from draftwerk.machine.shared_memory import SharedMemory, mapped
from draftwerk.model.batch.batch import Batch, Forward, Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.shard import Grid, shard_of
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.ranks.native_stage import NativeStage
from draftwerk.model.ranks.seats import group_bytes, take_seats
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.rounds import NO_DRAFT, Draft

CPU = torch.device("cpu")


@dataclass
class ThreadRanks:
    """A `Forward` over ranks that are threads."""

    stages: Sequence[NativeStage]

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        with ThreadPoolExecutor(len(self.stages)) as threads:
            results = [threads.submit(stage, batch, pages) for stage in self.stages]
            first, *_ = [result.result() for result in results]
            return first


def rounds() -> list[Batch]:
    """Return batches over 8 blocks of 4: prompts, a draft tree and a plain token, chunks without
    logits, and chunks beside tokens that have some.
    """
    first, second, third, fourth = (BatchBuilder(4) for _ in range(4))
    first.add([5, 6, 7, 8, 9, 10, 11], 0, (0, 1, 2), NO_DRAFT, samples=True)
    first.add([1, 2, 3], 0, (3, 4), NO_DRAFT, samples=False)
    tree = Draft(tokens=(3, 4, 5, 6), parents=(-1, -1, 0, 1), sources=("ngram",) * 4)
    second.add([12], 7, (0, 1, 2, 5), tree, samples=True)
    second.add([4], 3, (3, 4), NO_DRAFT, samples=True)
    third.add([9, 8], 4, (3, 4), NO_DRAFT, samples=False)
    third.add([7, 8, 9], 0, (6,), NO_DRAFT, samples=False)
    fourth.add([3, 4, 5], 0, (7,), NO_DRAFT, samples=False)
    fourth.add([1, 2], 6, (3, 4), NO_DRAFT, samples=True)
    fourth.add([13], 8, (0, 1, 2, 5), Draft((3,), (-1,), ("ngram",)), samples=True)
    return [builder.batch(CPU) for builder in (first, second, third, fourth)]


def computed(forward: Forward, pages: Pages) -> list[Tensor]:
    """Return the logits of `rounds`, then the keys and values that they leave."""
    return [*(forward(batch, pages) for batch in rounds()), pages.keys, pages.values]


def native_pages(forward: NativeForward, config: ModelConfig) -> Pages:
    """Return pages for `rounds`."""
    return allocate(config, 8, 4, forward.page_dtype, CPU, forward.page_width)


def differing(model: Checkpoint, directory: str | None, dtype: str, grids: Sequence[Grid]) -> str:
    """Return which grid gives other bits than one process, or an empty string."""
    alone = NativeForward(model.config, model.weights, dtype, Pool(1))
    expected = computed(alone, native_pages(alone, model.config))
    for grid in grids:
        found = computed(thread_ranks(directory, grid, dtype), native_pages(alone, model.config))
        if not all(map(torch.equal, found, expected)):
            return f"{dtype}, {grid}"
    return ""


def thread_ranks(
    directory: str | None, grid: Grid, dtype: str, kv_dtype: str = "auto"
) -> ThreadRanks:
    """Return a model divided among threads."""
    stages: list[NativeStage] = []
    memory = None
    for rank in range(grid.size):
        config = load(directory, None).config
        shard = shard_of(config, grid, rank)
        model = load(directory, None, shard=shard, keeps_blocks=dtype == STORED)
        memory = memory or SharedMemory.make(group_bytes(config, grid))
        seats = take_seats(mapped(memory.descriptor), config, grid, rank)
        forward = NativeForward(
            config, model.weights, dtype, Pool(1), kv_dtype, None, shard, seats.columns_handle
        )
        stages.append(NativeStage(forward, shard, seats))
    assert memory is not None
    memory.close()
    return ThreadRanks(stages)
