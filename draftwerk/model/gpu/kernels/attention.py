"""Paged attention of a round's rows as a Triton kernel, launched once for each kind of rows.

Verify rows have tiles of their own few tokens and many splits, prefill chunks tall tiles and few.
In exact mode one launch with constant tiles serves both.

One program takes (a tile of a row's new tokens, a KV head, a split of the keys). All query heads
that share the KV head are rows of one tile, so each key is read once for them and for every new
token of the tile. A second kernel merges the splits in their order.

    keys of a row   | tile 0 | tile 1 | ...             BLOCK_N keys each, counted from slot 0
    splits          |     split 0     |    split 1    |

Every tile begins at a multiple of BLOCK_N, so with splits of a fixed size and query tiles of a
fixed height a token's result does not depend on what else is computed: masked keys add exactly 0.
A tree breaks that rule, for its tokens lie in other slots than they would as a chain. With `PATHS`
each token has a program of its own that reads the keys of its path in the order of their depth.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from draftwerk.model.batch.batch import Batch, facts_of
from draftwerk.model.gpu.kernels.launch import ceil_div, launch, power_of_two

MASKED: tl.constexpr = tl.constexpr(-1.0e30)
"""A score that no key has; finite, because the difference of two infinities is not a number."""
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
CORES_WITHOUT_A_GPU = 32
"""The interpreter has none; this many make its tests split the keys."""


# Counts that change from round to round: one compiled kernel for all of them.
@triton.jit(
    do_not_specialize=[
        *("query_tiles", "splits", "split_tiles", "place_count", "table_stride"),
        *("least", "most"),
    ]
)
def attend_kernel(
    query,
    keys,
    values,
    tables,
    starts,
    lengths,
    masks,
    paths,
    out,
    part_out,
    part_max,
    part_sum,
    scale_log2,
    query_tiles,
    splits,
    split_tiles,
    place_count,
    query_stride,
    page_stride,
    slot_stride,
    table_stride,
    least,
    most,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PATHS: tl.constexpr,
    BY_ROW: tl.constexpr,
    WHOLE: tl.constexpr,
):
    TOKENS: tl.constexpr = 1 if PATHS else BLOCK_M // GROUP  # pyright: ignore
    # 1. Which row, query tile, KV head and split; a row shorter than the grid has no such tile.
    row = tl.program_id(0) // query_tiles
    begin = tl.program_id(0) % query_tiles * TOKENS
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if begin >= count or count > most:
        return
    lines = tl.arange(0, BLOCK_M)
    token = begin + lines // GROUP
    head = kv_head * GROUP + lines % GROUP
    live = (lines < TOKENS * GROUP) & (token < count)
    place = (row * most if BY_ROW else first) + token
    part = (split * place_count + place) * HEADS + head
    if count < least:  # another launch's: there is nothing to merge
        if not WHOLE:
            tl.store(part_max + part, tl.full([BLOCK_M], MASKED, tl.float32), mask=live)
        return
    prefix = tl.load(lengths + row) - count

    # 2. Load the tile's queries: a line for each new token and query head of the group.
    lanes = tl.arange(0, BLOCK_D)
    real = lanes < SIZE
    q = tl.load(
        query + (first + token)[:, None] * query_stride + head[:, None] * SIZE + lanes[None, :],
        mask=live[:, None] & real[None, :],
        other=0.0,
    )
    bits = tl.load(masks + first + token, mask=live, other=0)
    # 3. How many keys are seen: the last token of the tile sees the most, ancestors being earlier.
    seen = prefix + tl.minimum(begin + TOKENS, count)
    own_bits = tl.load(masks + first + begin)
    if PATHS:  # noqa: SIM102 - the outer is known to the compiler, the inner is not
        if own_bits != -1:
            ones = (own_bits >> tl.arange(0, 64).to(tl.int64)) & 1
            seen = prefix + tl.sum(ones, 0).to(tl.int32)

    # 4. The split's key tiles, and nothing seen yet: the online softmax of flash attention.
    tiles = tl.cdiv(seen, BLOCK_N)
    per_split = split_tiles
    if split_tiles == 0:
        per_split = tl.cdiv(tiles, splits)
    low = split * per_split
    high = tl.minimum(low + per_split, tiles)
    top = tl.full([BLOCK_M], MASKED, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for tile in range(low, high):
        # 5. Which keys of the tile each line sees, and in which slots they are.
        position = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        valid = position < seen
        own = position - prefix
        bit = tl.minimum(tl.maximum(own, 0), 63)
        slot = position
        if PATHS:
            if own_bits != -1:
                step = tl.load(paths + (first + begin) * 64 + bit)
                slot = tl.where(own < 0, position, prefix + step)
            see = valid[None, :] & live[:, None]
        else:
            marked = (bits[:, None] >> bit[None, :].to(tl.int64)) & 1 == 1
            among = tl.where((bits == -1)[:, None], own[None, :] <= token[:, None], marked)
            see = valid[None, :] & live[:, None] & ((own < 0)[None, :] | among)
        # 6. Through the block table to the keys; scores in base 2.
        page = tl.load(tables + row * table_stride + slot // PAGE, mask=valid, other=0)
        offset = page.to(tl.int64) * page_stride + slot % PAGE * slot_stride + kv_head * SIZE
        k = tl.load(
            keys + offset[None, :] + lanes[:, None], mask=valid[None, :] & real[:, None], other=0.0
        )
        scores = tl.dot(q, k.to(q.dtype), input_precision="ieee") * scale_log2
        scores = tl.where(see, scores, MASKED)
        # 7. A greater maximum fades what was summed before it.
        new_top = tl.maximum(top, tl.max(scores, 1))
        fade = tl.exp2(top - new_top)
        weights = tl.where(see, tl.exp2(scores - new_top[:, None]), 0.0)
        total = total * fade + tl.sum(weights, 1)
        v = tl.load(
            values + offset[:, None] + lanes[None, :],
            mask=valid[:, None] & real[None, :],
            other=0.0,
        )
        product = tl.dot(weights.to(q.dtype), v.to(q.dtype), input_precision="ieee")
        sums = sums * fade[:, None] + product
        top = new_top

    # 8. The result where no split has other keys; otherwise sums for `merge_kernel`.
    line = (first + token) * HEADS + head
    if WHOLE:
        result = sums / tl.maximum(total, 1e-30)[:, None]
        tl.store(
            out + line[:, None] * SIZE + lanes[None, :],
            result.to(out.dtype.element_ty),
            mask=live[:, None] & real[None, :],
        )
    else:
        tl.store(part_max + part, top, mask=live)
        tl.store(part_sum + part, total, mask=live)
        if low < high:
            tl.store(
                part_out + part.to(tl.int64)[:, None] * SIZE + lanes[None, :],
                sums,
                mask=live[:, None] & real[None, :],
            )


@triton.jit(do_not_specialize=["splits", "line_count", "most"])
def merge_kernel(
    part_out,
    part_max,
    part_sum,
    starts,
    out,
    splits,
    line_count,
    most,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BY_ROW: tl.constexpr,
    KEEP: tl.constexpr,
):
    """Merge the splits of one token and head, in their order, leaving out those without a key.

    Parts lie by token, or BY_ROW with `most` places for each row. With KEEP a line without any key,
    which another launch has computed, stays as it is.
    """
    line = tl.program_id(0)
    target = line
    if BY_ROW:
        row, token = line // HEADS // most, line // HEADS % most
        first = tl.load(starts + row)
        count = tl.load(starts + row + 1) - first
        if token >= count or count > most:
            return
        target = (first + token) * HEADS + line % HEADS
    lanes = tl.arange(0, BLOCK_D)
    real = lanes < SIZE
    top = MASKED
    total = tl.zeros([BLOCK_D], tl.float32)
    sums = tl.zeros([BLOCK_D], tl.float32)
    for split in range(splits):
        offset = split * line_count + line
        here = tl.load(part_max + offset)
        if here > MASKED:
            part = tl.load(
                part_out + offset.to(tl.int64) * SIZE + lanes,
                mask=real,
                other=0.0,
            )
            new_top = tl.maximum(top, here)
            fade = tl.exp2(top - new_top)
            weight = tl.exp2(here - new_top)
            total = total * fade + tl.load(part_sum + offset) * weight
            sums = sums * fade + part * weight
            top = new_top
    result = sums / tl.maximum(total, 1e-30)
    if KEEP:
        real = real & (total > 0.0)
    tl.store(out + target * SIZE + lanes, result.to(out.dtype.element_ty), mask=real)


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

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Map [T, heads, D] to the same; pages are [blocks, block_size, kv_heads, D]."""
        facts = facts_of(batch)
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
        paths = paths_of(batch.ancestors) if self.exact and facts.masked else None
        block_m = EXACT_ROWS if self.exact else _height(kind.most * group)
        block_m = max(block_m, power_of_two(group))
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


def _height(lines: int) -> int:
    return min(max(power_of_two(lines), 16), EXACT_ROWS)


def stages_of(block_m: int, item_size: int) -> int:
    """Return how many tiles of keys are in flight: two, or three where two would spill."""
    return 3 if item_size == 1 and block_m == 32 else 2


def paths_of(ancestors: Tensor) -> Tensor:
    """Return int32 [T, 64]: the new tokens of each path from the root on, then the others."""
    bits = ancestors[:, None] >> torch.arange(PATH_BITS, device=ancestors.device) & 1
    return bits.sort(dim=1, descending=True, stable=True).indices.int()


@cache
def core_count(device: torch.device) -> int:
    """Return how many programs a device runs at once."""
    if device.type != "cuda":
        return CORES_WITHOUT_A_GPU
    return torch.cuda.get_device_properties(device).multi_processor_count


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU."""
    return knobs.runtime.interpret
