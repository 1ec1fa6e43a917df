"""A token's logits are the same bits whatever it is computed with, in every format."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool
from draftwerk.speculative.rounds import Draft
from tests.model.native.models import (
    part,
    random_pages,
    random_tokens,
    random_weights,
    round_of,
    tiny_config,
)

COUNT = 300
TOKENS = random_tokens(COUNT)
CONFIG = tiny_config(head_size=32, num_heads=6, num_kv_heads=2)


@pytest.fixture(scope="module", params=[*FORMATS, "bf16 int8", "int8 int8", "bf16 int4"])
def model(request: pytest.FixtureRequest, pool: Pool) -> NativeForward:
    dtype, kv_dtype = (*request.param.split(), "auto")[:2]
    return NativeForward(CONFIG, random_weights(CONFIG), dtype, pool, kv_dtype)


@pytest.fixture(scope="module")
def whole(model: NativeForward) -> Tensor:
    """The logits of every token, computed in one chunk."""
    return model(round_of([part(TOKENS)]), pages_for(model))


def pages_for(model: NativeForward, block_size: int = 16) -> Pages:
    return random_pages(CONFIG, model.page_dtype, 1024 // block_size, block_size, model.page_width)


def by_threads(model: NativeForward, threads: int) -> NativeForward:
    """Return the same model with a pool of its own."""
    return NativeForward(CONFIG, random_weights(CONFIG), model.dtype, Pool(threads), model.kv_dtype)


def in_chunks(model: NativeForward, bounds: list[int], **place) -> Tensor:
    pages = pages_for(model)
    rounds = [round_of([part(TOKENS[a:b], a, **place)]) for a, b in pairwise(bounds)]
    return torch.cat([model(batch, pages) for batch in rounds])


def test_one_token_at_a_time(model: NativeForward, whole: Tensor) -> None:
    assert torch.equal(in_chunks(model, list(range(COUNT + 1))), whole)


@pytest.mark.parametrize("size", [2, 3, 5, 7, 8, 31, 64, 129, 200])
def test_chunks(model: NativeForward, whole: Tensor, size: int) -> None:
    assert torch.equal(in_chunks(model, [*range(0, COUNT, size), COUNT]), whole)


def test_any_blocks_and_any_block_size(model: NativeForward, whole: Tensor) -> None:
    shuffled = tuple(torch.randperm(64, generator=torch.Generator().manual_seed(1)).tolist())
    assert torch.equal(in_chunks(model, [0, 100, COUNT], blocks=shuffled), whole)
    batch = round_of([part(TOKENS, blocks=(3, 1, 2, 0))], block_size=256)
    assert torch.equal(model(batch, pages_for(model, 256)), whole)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(model: NativeForward, whole: Tensor, threads: int) -> None:
    other = by_threads(model, threads)
    assert torch.equal(in_chunks(other, [0, 1, 9, 150, COUNT]), whole)


def test_neighbours_in_the_batch(model: NativeForward, whole: Tensor) -> None:
    pages = pages_for(model)
    model(round_of([part(TOKENS[:270])]), pages)
    ours = part(TOKENS[270:275], 270)
    others = [part(random_tokens(4 + 9 * i, seed=i), 0, blocks=(40 + i, 50 + i)) for i in range(3)]
    for batch in ([ours, *others], [*others, ours], [others[0], ours, others[1]]):
        logits = model(round_of(batch), pages)
        first = sum(len(tokens) for tokens, *_ in batch[: batch.index(ours)])
        assert torch.equal(logits[first : first + 5], whole[270:275])


@pytest.mark.parametrize("prefix", [1, 40, 126, 127, 128, 250])
def test_a_tree_path_equals_the_chain(model: NativeForward, whole: Tensor, prefix: int) -> None:
    """The true continuation is spread over a tree with other branches between its nodes."""
    pages = pages_for(model)
    model(round_of([part(TOKENS[: prefix - 1])]), pages) if prefix > 1 else None
    true = TOKENS[prefix : prefix + 6]
    tokens, parents, path, last = [], [], [], -1
    for depth, token in enumerate(true):
        for wrong in range(depth % 3):
            tokens.append((token + 1 + wrong) % 101)
            parents.append(last)
        path.append(len(tokens))
        tokens.append(token)
        parents.append(last)
        last = path[-1]
    draft = Draft(tuple(tokens), tuple(parents), ("",) * len(tokens))
    row = part(TOKENS[prefix - 1 : prefix], prefix - 1, draft=draft)
    chunk = part(random_tokens(50, seed=5), blocks=(40, 41, 42, 43))
    for batch, first in (([row], 0), ([chunk, row], 50)):
        logits = model(round_of(batch), pages)
        seen = logits[[first, *(first + 1 + node for node in path)]]
        assert torch.equal(seen, whole[prefix - 1 : prefix + 6])


def test_many_rows_at_once(model: NativeForward, whole: Tensor) -> None:
    """Enough blocks that attention is not split tile by tile between threads."""
    pages = pages_for(model)
    model(round_of([part(TOKENS[:299])]), pages)
    others = [part(random_tokens(2, seed=i), 0, blocks=(40 + i,)) for i in range(12)]
    logits = model(round_of([*others, part(TOKENS[299:], 299)]), pages)
    assert torch.equal(logits[-1], whole[-1])


@pytest.mark.parametrize("threads", [1, 2])
def test_few_tokens_behind_many(model: NativeForward, threads: int) -> None:
    """One thread takes all heads of a tile, and fetches the next one meanwhile."""
    tokens, blocks = random_tokens(700), tuple(range(1, 45))
    expected = model(round_of([part(tokens, blocks=blocks)]), pages_for(model))
    other = by_threads(model, threads)
    pages = pages_for(model)
    other(round_of([part(tokens[:680], blocks=blocks)]), pages)
    for begin, end in ((680, 681), (681, 689), (689, 692)):
        logits = other(round_of([part(tokens[begin:end], begin, blocks)]), pages)
        assert torch.equal(logits, expected[begin:end])
    beside = part(tokens[692:], 692, blocks), part(tokens[:5], 0, blocks=(60,))
    logits = other(round_of([*beside]), pages)
    assert torch.equal(logits, torch.cat([expected[692:], expected[:5]]))


@pytest.mark.parametrize("rows", [2, 5])
def test_rows_that_share_a_long_prefix(model: NativeForward, whole: Tensor, rows: int) -> None:
    pages = pages_for(model)
    model(round_of([part(TOKENS[:270])]), pages)
    parts = []
    for row in range(rows):
        own = 40 + row  # from position 256 on; two tiles before it are shared by all rows
        for tensor in (pages.keys, pages.values):
            tensor[:, own] = tensor[:, 17]
        blocks = (*range(1, 17), own, 50 + row)
        parts.append(part(TOKENS[270 : 271 + row], 270, blocks))
    alone = part(TOKENS[:40], 0, tuple(range(20, 32)))
    logits = model(round_of([*parts, alone][: rows + (rows == 5)]), pages)
    begin = 0
    for row in range(rows):
        assert torch.equal(logits[begin : begin + 1 + row], whole[270 : 271 + row])
        begin += 1 + row
    assert torch.equal(logits[begin:], whole[: len(logits) - begin])
