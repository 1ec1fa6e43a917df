"""How a model is divided among ranks: layers between stages, columns between a stage's ranks.

    ranks of 2 stages x 3      stage 0 (embedding)   3  4  5
                               stage 1 (lm_head)     0  1  2

Rank 0 is in the last stage, since it samples from the logits. Only outputs are split: every rank
reads all inputs of a product and computes some of its columns, so no sum is ever cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.unsupported import Refused

UNIT = 16
"""Columns that stay together where there are enough: a cache line of floats."""


@dataclass(frozen=True, slots=True)
class Grid:
    """How many stages there are, and how many ranks share each."""

    pipeline: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        return self.pipeline * self.tensor

    def stage(self, rank: int) -> int:
        """Return which stage a rank is in; the last is rank 0's."""
        return self.pipeline - 1 - rank // self.tensor

    def column(self, rank: int) -> int:
        """Return which of its stage's ranks it is."""
        return rank % self.tensor


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of one rank: some layers, and of their products some columns."""

    layers: range
    heads: range
    """Query heads."""
    kv_heads: range
    hidden: range
    """Columns of what is added to the hidden state."""
    ffn: range
    vocab: range
    is_first: bool = True
    """Whether it embeds the tokens."""
    is_last: bool = True
    """Whether it has the norm and the lm_head at the end."""


def whole(config: ModelConfig) -> Shard:
    """Return what a model alone in its process has."""
    return shard_of(config, Grid(), 0)


def shard_of(config: ModelConfig, grid: Grid, rank: int) -> Shard:
    """Return a rank's part of a model. Raises Refused where there are more ranks than parts."""
    if grid.pipeline > config.layer_count:
        raise Refused(
            f"pipeline_parallel {grid.pipeline}: the model has {config.layer_count} layers, and "
            "each stage needs one"
        )
    if grid.tensor > config.num_heads:
        raise Refused(
            f"tensor_parallel {grid.tensor}: the model has {config.num_heads} attention heads, "
            "and each rank needs one"
        )
    if grid.tensor > 1 and config.experts is not None:
        raise Refused(f"tensor_parallel {grid.tensor}: layers with experts are not divided")
    stage, column = grid.stage(rank), grid.column(rank)
    heads, kv_heads = head_shares(config.num_heads, config.num_kv_heads, grid.tensor)[column]
    is_last = stage == grid.pipeline - 1
    return Shard(
        layers=divided(config.layer_count, grid.pipeline)[stage],
        heads=heads,
        kv_heads=kv_heads,
        hidden=columns(config.hidden_size, grid.tensor)[column],
        ffn=columns(config.ffn_size, grid.tensor)[column],
        vocab=columns(config.vocab_size if is_last else 0, grid.tensor)[column],
        is_first=stage == 0,
        is_last=is_last,
    )


def divided(size: int, parts: int) -> list[range]:
    """Return consecutive ranges, the earlier ones longer by one where it does not divide evenly."""
    least, more = divmod(size, parts)
    bounds = [part * least + min(part, more) for part in range(parts + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


def columns(size: int, parts: int) -> list[range]:
    """Return ranges of whole units, but for the last; of single columns where there are few."""
    unit = UNIT if size >= parts * UNIT else 1
    units = divided(-(-size // unit), parts)
    return [range(min(size, one.start * unit), min(size, one.stop * unit)) for one in units]


def head_shares(heads: int, kv_heads: int, parts: int) -> list[tuple[range, range]]:
    """Return the query heads and the KV heads of each part; a query head is with its KV head.

    Of more parts than KV heads several have the same one, each with some of its query heads.
    """
    group = heads // kv_heads
    if parts <= kv_heads:
        shares = divided(kv_heads, parts)
        return [(range(one.start * group, one.stop * group), one) for one in shares]
    return list(_within_groups(group, kv_heads, parts))


def _within_groups(group: int, kv_heads: int, parts: int) -> Iterator[tuple[range, range]]:
    for kv_head, holders in enumerate(divided(parts, kv_heads)):
        for one in divided(group, len(holders)):
            first = kv_head * group
            yield range(first + one.start, first + one.stop), range(kv_head, kv_head + 1)
