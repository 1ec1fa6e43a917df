"""How torch ranks exchange tensors: by torch.distributed, over gloo.

The process groups are this object's own and not torch's global ones, so that a process may have
several and a test none.
"""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore, ProcessGroupGloo, Store

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.shard import Grid, columns, head_shares

ADDRESS = "127.0.0.1"
Gloo: Any = ProcessGroupGloo
"""Its own annotations leave out the methods that it has."""
PATIENCE = timedelta(minutes=10)
"""As long as loading may take; a rank that is lost closes its connections."""


class GlooExchange:
    """One rank's connections. Raises RuntimeError, in any call, once another rank is lost."""

    def __init__(self, rendezvous: Path, config: ModelConfig, grid: Grid, rank: int) -> None:
        """`rendezvous` is a file that all ranks see and that nothing was written to."""
        store = FileStore(str(rendezvous), grid.size)
        stage = grid.stage(rank)
        stages: list[list[int]] = [[] for _ in range(grid.pipeline)]
        for each in range(grid.size):
            stages[grid.stage(each)].append(each)
        self._stage: Any = None
        self._before: Any = None
        self._after: Any = None
        if grid.tensor > 1:
            self._stage = _connected(store, f"stage {stage}", stages[stage], rank)
        # In the order of the links, so that no two ranks wait for each other.
        if stage > 0:
            ranks = stages[stage - 1] + stages[stage]
            self._before = _connected(store, f"link {stage - 1}", ranks, rank)
        if stage + 1 < grid.pipeline:
            ranks = stages[stage] + stages[stage + 1]
            self._after = _connected(store, f"link {stage}", ranks, rank)
        heads = [one for one, _ in head_shares(config.num_heads, config.num_kv_heads, grid.tensor)]
        self._widths = {
            "attended": [len(one) * config.head_size for one in heads],
            "hidden": _widths(config.hidden_size, grid),
            "ffn": _widths(config.ffn_size, grid),
            "vocab": _widths(config.vocab_size, grid),
        }

    def gather(self, own: Tensor, kind: str) -> Tensor:
        """Return all columns of [T, own columns], in the ranks' order."""
        if self._stage is None:
            return own
        widths = self._widths[kind]
        padded = own.new_zeros(len(own), max(widths))
        padded[:, : own.shape[1]] = own
        found = [torch.empty_like(padded) for _ in widths]
        self._stage.allgather([[_bytes(each) for each in found]], [_bytes(padded)]).wait()
        return torch.cat([one[:, :width] for one, width in zip(found, widths, strict=True)], 1)

    def take(self, hidden: Tensor) -> Tensor:
        """Fill a tensor with what the stage before has come to."""
        assert self._before is not None
        self._before.broadcast([_bytes(hidden)]).wait()
        return hidden

    def give(self, hidden: Tensor) -> None:
        """Hand hidden states to the next stage; all ranks of this one have them."""
        assert self._after is not None
        self._after.broadcast([_bytes(hidden.contiguous())]).wait()


def _widths(size: int, grid: Grid) -> list[int]:
    return [len(one) for one in columns(size, grid.tensor)]


def _connected(store: Store, name: str, ranks: Iterable[int], rank: int) -> Any:
    """Connect some ranks; the first of them is the root of broadcasts."""
    members = list(ranks)
    settings = Gloo._Options()
    settings._devices = [Gloo.create_device(hostname=ADDRESS)]
    settings._timeout = PATIENCE
    return Gloo(PrefixStore(name, store), members.index(rank), len(members), settings)


def _bytes(values: Tensor) -> Tensor:
    """Return the same memory as bytes: gloo need not know the number format."""
    return values.view(torch.uint8)
