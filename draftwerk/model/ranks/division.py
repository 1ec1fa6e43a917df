"""A model divided among processes: rank 0 starts the others, and its forward pass leads theirs."""

from dataclasses import dataclass
from math import prod

from msgspec import structs, to_builtins

from draftwerk.cache.pages.page_layout import memory_bytes
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.machine.threads import usable_cpus
from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import NATIVE, ModelOptions
from draftwerk.model.checkpoint.shard import shard_of
from draftwerk.model.native.native_shape import page_format
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.leading import LeadingForward
from draftwerk.model.ranks.seats import group_bytes
from draftwerk.model.ranks.share import Share, grid_of
from draftwerk.model.reference.kv_pages import page_shape
from draftwerk.speculative.protocol.frames import OnProgress


@dataclass(frozen=True, slots=True)
class Division:
    """Rank 0's view of a divided model."""

    options: ModelOptions
    """The options of rank 0, which has part of the model."""
    group: RankGroup
    """The other ranks."""

    def around(self, forward: Forward, pages: Pages, share: Share) -> LeadingForward:
        """Return the forward pass that hands each batch to all ranks. Raises Refused."""
        leading = LeadingForward(share.stage(forward), self.group, pages)
        self.group.wait_until_ready()
        return leading


def divide(options: ModelOptions, progress: OnProgress) -> Division:
    """Start the other ranks of a divided model. Raises Refused."""
    grid = grid_of(options)
    config = read_config(locate(options.source, progress)[1])
    for rank in range(grid.size):
        shard_of(config, grid, rank)
    dtype, width = page_format(config, options.dtype, options.kv_dtype)
    shape = page_shape(config, options.block_count, options.block_size, width)
    group = RankGroup(progress)
    own = structs.replace(
        options,
        # Stages take turns: only the ranks of one compute at a time.
        threads=options.threads or max(1, usable_cpus() // grid.tensor),
        rendezvous="" if options.attention == NATIVE else str(group.rendezvous()),
        group_descriptor=group.keep(SharedMemory.make(group_bytes(config, grid))),
    )
    if own.pages_descriptor < 0:
        size = 2 * prod(shape) * dtype.itemsize
        pages = SharedMemory.make(memory_bytes(size))
        own = structs.replace(own, pages_descriptor=group.keep(pages))
    weights = dict(enumerate(options.rank_weights_descriptors, 1))
    others = {
        rank: structs.replace(
            own, rank=rank, weights_descriptor=weights.get(rank, -1), rank_weights_descriptors=()
        )
        for rank in range(1, grid.size)
    }
    descriptors = (own.group_descriptor, own.pages_descriptor, *weights.values())
    group.start({rank: to_builtins(told) for rank, told in others.items()}, descriptors)
    return Division(own, group)
