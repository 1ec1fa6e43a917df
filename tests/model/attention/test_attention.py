"""The reference attention against dense attention, one text at a time."""

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.gpu.choice import Needs, choose_attention
from draftwerk.pictures.picture_rows import seeing_each_other
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from tests.support.model_driver import random_tree
from tests.support.runners import CPU

HEADS, KV_HEADS, SIZE, BLOCK = 6, 2, 8, 4


SCORINGS = {
    "plain": PLAIN,
    "window of one": Scoring(window=1),
    "window": Scoring(window=5),
    "scale": Scoring(scale=0.7),
    "soft cap": Scoring(softcap=0.5),
    "all": Scoring(scale=0.7, softcap=0.5, window=7),
}


def dense(query: Tensor, keys: Tensor, values: Tensor, scoring: Scoring = PLAIN) -> Tensor:
    """Return attention [heads, D] of the last token of a text over all of it, or its window."""
    if scoring.window:
        keys, values = keys[-scoring.window :], values[-scoring.window :]
    if not scoring.softcap:
        queries, keys, values = (each.transpose(0, 1) for each in (query[None], keys, values))
        how: dict[str, Any] = {"scale": scoring.scale or None, "enable_gqa": True}
        return scaled_dot_product_attention(queries, keys, values, **how)[:, 0]
    keys, values = (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (keys, values))
    scores = torch.einsum("hd,lhd->hl", query, keys) * (scoring.scale or SIZE**-0.5)
    capped = (scores / scoring.softcap).tanh() * scoring.softcap
    return torch.einsum("hl,lhd->hd", capped.softmax(-1), values)


def random_pages(generator: torch.Generator) -> Pages:
    shape = (1, 64, BLOCK, KV_HEADS, SIZE)
    return Pages(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))


def paths(parents: tuple[int, ...], known: int) -> list[list[int]]:
    """Return, for each new token, the new tokens that it sees: known ones, then its ancestors."""
    seen = [list(range(index + 1)) for index in range(known)]
    for node, parent in enumerate(parents):
        seen.append([*seen[known + parent], known + node])
    return seen


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
@pytest.mark.parametrize("name", ["padded", "reference", "tiled"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sees_behind", [False, True])
def test_every_token_attends_to_its_prefix_and_its_own_path(
    name: str, seed: int, scoring: Scoring, sees_behind: bool
):
    rng, generator = Random(seed), torch.Generator().manual_seed(seed)
    pages = random_pages(generator)
    layout, rows = BatchBuilder(BLOCK), []
    blocks = rng.sample(range(64), 64)
    for _ in range(4):
        prefix, known = rng.choice([0, 3, 4, 17]), rng.choice([1, 2, 9])
        draft = rng.choice([NO_DRAFT, random_tree(rng, [], 1000, 12)])
        table = tuple(blocks.pop() for _ in range(10))
        layout.add([0] * known, prefix, table, draft, samples=False)
        rows.append((prefix, known, draft, table))
    query = torch.randn(len(layout.tokens), HEADS, SIZE, generator=generator)
    tiled = name == "tiled"
    attend = TiledAttention() if tiled else choose_attention(name, Needs(CPU)).attention
    rest = () if scoring == PLAIN else (scoring,)
    batch = layout.batch(CPU)
    if sees_behind:  # where nobody does
        batch = seeing_each_other(batch, {})
    ours = attend(query, pages.keys[0], pages.values[0], batch, *rest)
    index = 0
    for prefix, known, draft, table in rows:
        keys, values = (
            tensor[0, list(table)].flatten(0, 1) for tensor in (pages.keys, pages.values)
        )
        for seen in paths(draft.parents, known):
            slots = [*range(prefix), *(prefix + token for token in seen)]
            expected = dense(query[index], keys[slots], values[slots], scoring)
            torch.testing.assert_close(ours[index], expected, atol=1e-5, rtol=1e-5)
            index += 1
    assert index == len(query)


def test_a_tree_too_wide_for_one_mask_is_split_into_two_rows():
    layout = BatchBuilder(BLOCK)
    tree = Draft((1, 2, 3), (-1, -1, 0), ("x",) * 3)
    layout.add(list(range(100)), 0, tuple(range(30)), tree, samples=True)
    batch = layout.batch(CPU)
    assert batch.row_starts.tolist() == [0, 99, 103]
    assert batch.kv_lengths.tolist() == [99, 103]
    assert batch.positions[99:].tolist() == [99, 100, 100, 101]
    assert batch.slots[99:].tolist() == [99, 100, 101, 102]
    assert batch.ancestors[99:].tolist() == [0b1, 0b11, 0b101, 0b1011]
    assert batch.outputs.tolist() == [99, 100, 101, 102]


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(Refused, match="attention 'quick' is not one of"):
        choose_attention("quick", Needs(CPU))


def test_a_backend_that_is_not_installed_is_refused_with_the_remedy():
    with pytest.raises(Refused, match=r"No module named 'flash_attn'.*pip install flash-attn"):
        choose_attention("flash_attn", Needs(CPU, block_size=256))


def test_a_block_size_that_a_backend_cannot_page_is_refused():
    with pytest.raises(Refused, match="multiple of 256 tokens, not 16: --block-size 256"):
        choose_attention("flash_attn", Needs(CPU, block_size=16))


def test_a_backend_that_is_not_exact_is_refused_in_exact_mode():
    with pytest.raises(Refused, match=r"attention padded is not exact on a GPU.*one of: .*triton"):
        choose_attention("padded", Needs(CPU, exact=True))
