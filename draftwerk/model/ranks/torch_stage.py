"""The stage that one rank computes of a batch, with torch on a CPU."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.shard import Grid, Shard, shard_of
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.ranks.gloo import GlooExchange
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.tiled_products import TILE


@dataclass(frozen=True, slots=True)
class TorchStage:
    """A `Forward` of which only the last stage's result is logits; pages are the whole model's."""

    forward: TorchForward
    shard: Shard
    exchange: GlooExchange

    @property
    def states(self) -> Tensor | None:
        return self.forward.states

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Take hidden states, compute, hand them on. Raises RuntimeError once a rank is lost."""
        layers = slice(self.shard.layers.start, self.shard.layers.stop)
        own = Pages(pages.keys[layers], pages.values[layers])
        hidden = None
        if not self.shard.is_first:
            size = (len(batch.tokens), self.forward.config.hidden_size)
            hidden = self.exchange.take(torch.empty(size, dtype=self.forward.weights.norm.dtype))
        result = self.forward.run_stage(batch, own, hidden)
        if not self.shard.is_last:
            self.exchange.give(result)
        return result

    def give_up(self) -> None:
        """Nothing to do: a lost rank's connections end."""


def connect(
    rendezvous: Path, config: ModelConfig, grid: Grid, rank: int, dtype: torch.dtype
) -> GlooExchange:
    """Return a rank's connections. Raises Refused where it could not keep the model's bits."""
    check_columns(config, shard_of(config, grid, rank), dtype)
    return GlooExchange(rendezvous, config, grid, rank)


def check_columns(config: ModelConfig, shard: Shard, dtype: torch.dtype) -> None:
    """Raise Refused where torch gives a column other bits if other columns are missing.

    Its libraries promise nothing of the kind; all shapes of the model are tried.
    """
    size, heads, kv_heads = config.head_size, config.num_heads, config.num_kv_heads
    qkv = [
        *_heads(shard.heads, 0, size),
        *_heads(shard.kv_heads, heads, size),
        *_heads(shard.kv_heads, heads + kv_heads, size),
    ]
    gate_up = [*shard.ffn, *(config.ffn_size + column for column in shard.ffn)]
    hidden, ffn = config.hidden_size, config.ffn_size
    for rows, columns, own in (
        ((heads + 2 * kv_heads) * size, hidden, qkv),
        (hidden, heads * size, [*shard.hidden]),
        (2 * ffn, hidden, gate_up),
        (hidden, ffn, [*shard.hidden]),
        (config.vocab_size if shard.is_last else 0, hidden, [*shard.vocab]),
    ):
        if rows and not _agree(rows, columns, own, dtype):
            raise Refused(
                f"torch's products of {rows} x {columns} give other bits where columns are "
                "missing, so the text would change; divide models with the native kernels"
            )


def _heads(heads: range, first: int, size: int) -> range:
    return range((first + heads.start) * size, (first + heads.stop) * size)


def _agree(rows: int, columns: int, own: list[int], dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(rows)
    matrix = torch.rand(rows, columns, generator=generator).sub_(0.5).to(dtype)
    values = torch.rand(TILE, columns, generator=generator).sub_(0.5).to(dtype)
    return torch.equal(linear(values, matrix)[:, own], linear(values, matrix[own]))
