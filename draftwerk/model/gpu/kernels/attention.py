"""Attention of a round's rows, launched once for each kind of rows.

Verify rows have tiles of their own few tokens and many splits, prefill chunks tall tiles and few.
In exact mode one launch with constant tiles serves both.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.attention.signature import PLAIN, Scoring, is_plain
from draftwerk.model.batch.batch import Batch, facts_of
from draftwerk.model.gpu.kernels.launch import ceil_div, core_count, launch, power_of_two
from draftwerk.model.gpu.kernels.split_attention import attend_kernel, merge_kernel

LOG2_E = 1.4426950408889634
PATH_BITS = 64
VERIFY_MAX = 16
"""New tokens of a row that verifies; longer ones are chunks of prompts."""
EXACT_ROWS = 64
"""Height of the query tile, fixed: a taller one may add up in another order."""
EXACT_SPLIT = 256
"""Keys of a split, fixed for the same reason; doubled until the longest context needs few."""
SPLITS_MAX = 32
PROGRAMS_PER_CORE = 2


class RowKind(NamedTuple):
    """Rows of so many new tokens."""

    least: int
    most: int


class TritonAttention:
    """The backend `triton`: any page size, chains and trees, safe to record in a CUDA graph.

    With `exact` a token's result is the same bits in any batch, chain or tree.
    """

    def __init__(self, exact: bool = False, context_max: int = 8192) -> None:
        self.exact = exact
        self.exact_split = EXACT_SPLIT
        while self.exact_split * SPLITS_MAX < context_max:
            self.exact_split *= 2

    def serves(self, query: Tensor, batch: Batch, scoring: Scoring) -> bool:
        """Return whether scores are Llama's, and no token of a row sees those behind it."""
        return is_plain(scoring) and batch.seen is None

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        facts = facts_of(batch)
        if self.exact and facts.masked and batch.paths is None:
            batch.paths = paths_of(batch.ancestors)
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        kinds = [RowKind(1, facts.row_max)]
        if facts.row_max > VERIFY_MAX and len(batch.kv_lengths) > 1 and not self.exact:
            kinds = [RowKind(1, VERIFY_MAX), RowKind(VERIFY_MAX + 1, facts.row_max)]
        for kind in kinds:
            self._launch(query, keys, values, batch, out, kind, is_only=len(kinds) == 1)
        return out

    def _launch(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        batch: Batch,
        out: Tensor,
        kind: RowKind,
        is_only: bool,
    ) -> None:
        """Queue the rows of a kind; the others' lines of `out` are left alone."""
        facts = facts_of(batch)
        token_count, heads, size = query.shape
        group = heads // keys.shape[2]
        paths = batch.paths if self.exact and facts.masked else None
        height = EXACT_ROWS if self.exact else min(power_of_two(kind.most * group), EXACT_ROWS)
        block_m = max(height, power_of_two(group), 16)
        block_n = 64 if size > 64 else 128
        tokens = 1 if paths is not None else block_m // group
        query_tiles = ceil_div(kind.most, tokens)
        programs = len(batch.kv_lengths) * query_tiles * keys.shape[2]
        splits, split_tiles = self.splits(facts.kv_max, programs, block_n, query.device)
        whole = splits == 1
        # Of verify rows alone, or each chunk's tokens would have parts for all of their splits.
        by_row = not is_only and kind.least == 1
        places = kind.most * len(batch.kv_lengths) if by_row else token_count
        lines = places * heads
        part_out = out if whole else query.new_empty(splits, lines, size, dtype=torch.float32)
        part_max = out if whole else query.new_empty(splits, lines, dtype=torch.float32)
        part_sum = out if whole else torch.empty_like(part_max)
        block_d = max(16, power_of_two(size))
        launch(
            attend_kernel,
            (len(batch.kv_lengths) * query_tiles, keys.shape[2], splits),
            query,
            keys,
            values,
            batch.block_tables,
            batch.row_starts,
            batch.kv_lengths,
            batch.ancestors,
            batch.ancestors if paths is None else paths,
            out,
            part_out,
            part_max,
            part_sum,
            size**-0.5 * LOG2_E,
            query_tiles,
            splits,
            split_tiles,
            places,
            query.stride(0),
            keys.stride(0),
            keys.stride(1),
            batch.block_tables.stride(0),
            kind.least,
            kind.most,
            HEADS=heads,
            GROUP=group,
            SIZE=size,
            BLOCK_D=block_d,
            PAGE=keys.shape[1],
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            PATHS=paths is not None,
            BY_ROW=by_row,
            WHOLE=whole,
            num_warps=4,
            num_stages=stages_of(block_m, keys.itemsize),
        )
        if not whole:
            launch(
                merge_kernel,
                (lines,),
                part_out,
                part_max,
                part_sum,
                batch.row_starts,
                out,
                splits,
                lines,
                kind.most,
                HEADS=heads,
                SIZE=size,
                BLOCK_D=block_d,
                BY_ROW=by_row,
                KEEP=not is_only and not by_row,
            )

    def splits(
        self, kv_max: int, programs: int, block_n: int, device: torch.device
    ) -> tuple[int, int]:
        """Return how many splits, and their size in tiles; 0 shares the tiles out evenly.

        `programs` is how many there would be without splits.
        """
        if self.exact:
            return max(1, ceil_div(kv_max, self.exact_split)), self.exact_split // block_n
        wanted = PROGRAMS_PER_CORE * core_count(device) // max(1, programs)
        return max(1, min(wanted, ceil_div(kv_max, 2 * block_n), SPLITS_MAX)), 0


def stages_of(block_m: int, item_size: int) -> int:
    """Return how many tiles of keys are in flight: two, or three where two would spill."""
    return 3 if item_size == 1 and block_m == 32 else 2


def paths_of(ancestors: Tensor) -> Tensor:
    """Return int32 [T, 64]: the new tokens of each path from the root on, then the others."""
    bits = ancestors[:, None] >> torch.arange(PATH_BITS, device=ancestors.device) & 1
    return bits.sort(dim=1, descending=True, stable=True).indices.int()
