"""Tiled attention gives a token the same bits alone, in chunks, in a tree and beside others."""

from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.signature import PLAIN, ScoredAttention, Scoring
from draftwerk.model.attention.tiled import QUERIES, TiledAttention, paths_of
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from tests.support.runners import CPU

HEADS, KV_HEADS, SIZE, BLOCK = 6, 2, 24, 16
TEXT = 1100
"""More keys than two of a product's."""
TABLE, BESIDE = tuple(range(70)), tuple(range(70, 170))
SCORINGS = {
    "plain": PLAIN,
    "window": Scoring(window=40),
    "a window beyond a tile of keys": Scoring(scale=0.3, window=700),
    "soft cap": Scoring(softcap=2.0),
    "sinks": Scoring(window=900, sinks=torch.linspace(-2.0, 6.0, HEADS)),
}


class Text:
    """The queries of a text, its keys and values in pages, and other rows beside it."""

    def __init__(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(5)
        shape = (170, BLOCK, KV_HEADS, SIZE)
        self.keys, self.values = (torch.randn(shape, generator=generator) for _ in range(2))
        self.keys, self.values = self.keys.to(dtype), self.values.to(dtype)
        self.queries = torch.randn(TEXT, HEADS, SIZE, generator=generator).to(dtype)
        self.generator = generator

    def attended(
        self, attention: ScoredAttention, scoring: Scoring, start: int, stop: int, others: int = 0
    ) -> Tensor:
        """Return some of the text's rows, computed beside so many tokens of another."""
        builder = BatchBuilder(BLOCK)
        if others:
            builder.add([0] * (others % 300), others - others % 300, BESIDE, NO_DRAFT, False)
        builder.add([0] * (stop - start), start, TABLE, NO_DRAFT, samples=False)
        beside = torch.randn(others % 300, HEADS, SIZE, generator=self.generator)
        query = torch.cat([beside.to(self.queries.dtype), self.queries[start:stop]])
        batch = builder.batch(CPU)
        return attention(query, self.keys, self.values, batch, scoring)[len(beside) :]

    def in_tree(self, scoring: Scoring, start: int) -> Tensor:
        """Return the rows from `start` on, each node beside a wrong one: every second is right."""
        parents = tuple(parent for node in range(8) for parent in 2 * [2 * node - 1])
        builder = BatchBuilder(BLOCK)
        builder.add([0], start, TABLE, Draft(tuple(range(16)), parents, ("x",) * 16), True)
        rows = [start, *(start + 1 + node // 2 for node in range(16))]
        keys, values = self.keys.clone(), self.values.clone()
        for pages, held in ((keys, self.keys), (values, self.values)):
            pages.flatten(0, 1)[start : start + 17] = held.flatten(0, 1)[rows]
        query, batch = self.queries[rows], builder.batch(CPU)
        return TiledAttention()(query, keys, values, batch, scoring)[[0, *range(2, 17, 2)]]


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def text(request: pytest.FixtureRequest) -> Text:
    return Text(request.param)


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
def test_bits_depend_on_no_company_nor_threads(text: Text, scoring: Scoring):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = text.attended(TiledAttention(), scoring, 0, TEXT)
        if text.queries.dtype == torch.float32:
            plain = text.attended(attend, scoring, 0, TEXT)
            torch.testing.assert_close(whole, plain, rtol=1e-4, atol=1e-5)
        torch.set_num_threads(2)
        for start, stop, others in ((0, 1, 0), (7, 30, 5), (511, 514, 1490), (900, TEXT, 33)):
            rows = text.attended(TiledAttention(), scoring, start, stop, others)
            assert torch.equal(rows, whole[start:stop]), (start, stop)
        for start in (3, 500, 1023, TEXT - 10):
            assert torch.equal(text.in_tree(scoring, start), whole[start : start + 9]), start
    finally:
        torch.set_num_threads(before)


def test_a_trees_nodes_are_each_in_one_path():
    rng = Random(3)
    for _ in range(50):
        masks: list[int] = []
        for node in range(rng.randint(1, 20)):
            parent = rng.randrange(-1, node)
            masks.append((masks[parent] if parent >= 0 else 0) | 1 << node)
        found = [*paths_of(masks)]
        assert sorted(node for _, new in found for node in new) == [*range(len(masks))]
        for path, new in found:
            assert sum(1 << node for node in path) == masks[path[-1]]
            assert new <= {*path} and path[-1] in new
    assert QUERIES == 16


def test_padding_as_far_as_it_is_needed_alone_would_not_do(text: Text):
    """What makes the tiles necessary: the same attention, padded less, has other bits."""
    whole = text.attended(PaddedAttention(), PLAIN, 0, TEXT)
    parts = [text.attended(PaddedAttention(), PLAIN, at, at + 1, 65) for at in range(0, TEXT, 50)]
    if text.queries.dtype == torch.float32:
        assert not torch.equal(torch.cat(parts), whole[::50])
