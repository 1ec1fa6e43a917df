"""One rank's share of a divided model: its weights, and how it gets what other ranks compute."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from draftwerk.machine.shared_memory import mapped
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import NATIVE, ModelOptions
from draftwerk.model.checkpoint.shard import Grid, Shard, shard_of
from draftwerk.model.ranks.leading import Stage
from draftwerk.model.ranks.native_stage import NativeStage
from draftwerk.model.ranks.seats import RankSlots, take_seats
from draftwerk.model.reference.tiled_products import GatherColumns, all_mine

if TYPE_CHECKING:
    from draftwerk.model.ranks.gloo import GlooExchange


NO_SEATS = RankSlots()


@dataclass(frozen=True, slots=True)
class Share:
    """A process's part of a model; without a shard it is the whole of it."""

    shard: Shard | None = None
    seats: RankSlots = NO_SEATS
    """Where ranks on the native kernels meet."""
    exchange: "GlooExchange | None" = None
    """The connection of ranks in torch."""
    words: tuple[str, ...] = ()
    """The words that tell its packed weights from those of other ranks."""

    @property
    def gather(self) -> GatherColumns:
        """The function that puts the columns of all ranks together, in torch."""
        return all_mine if self.exchange is None else self.exchange.gather

    def stage(self, forward: Any) -> Stage:
        """Return the forward pass with what is handed over before and after it."""
        assert self.shard is not None, "the whole model has no stages"
        if self.exchange is None:
            return NativeStage(forward, self.shard, self.seats)
        from draftwerk.model.ranks.torch_stage import TorchStage

        return TorchStage(forward, self.shard, self.exchange)


WHOLE = Share()


def share_of(options: ModelOptions, dtype: torch.dtype) -> Share:
    """Return what this process has of a model; `dtype` is torch's. Raises Refused."""
    grid = grid_of(options)
    if grid.size == 1:
        return WHOLE
    config = read_config(locate(options.source)[1])
    shard = shard_of(config, grid, options.rank)
    words = (f"rank {options.rank} of {grid}",)
    if options.attention == NATIVE:
        seats = take_seats(mapped(options.group_descriptor), config, grid, options.rank)
        return Share(shard, seats, words=words)
    # Not every build of torch has it, and it takes a while to import.
    from draftwerk.model.ranks.torch_stage import connect

    exchange = connect(Path(options.rendezvous), config, grid, options.rank, dtype)
    return Share(shard, exchange=exchange, words=words)


def grid_of(options: ModelOptions) -> Grid:
    return Grid(options.pipeline_parallel, options.tensor_parallel)
