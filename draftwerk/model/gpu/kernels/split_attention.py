"""Paged attention of rows of tokens as Triton kernels: one of splits of the keys, one that merges.

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

import triton
import triton.language as tl

MASKED: tl.constexpr = tl.constexpr(-1.0e30)
"""A score that no key has; finite, because the difference of two infinities is not a number."""


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
