"""The adapters of FlashAttention, over a small real one made of the reference."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.flash import FlashAttention2, FlashAttention3, WithTrees
from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Draft, chain
from tests.support.runners import CPU

HEADS, KV_HEADS, SIZE, PAGE, BLOCKS = 4, 2, 16, 256, 12


@dataclass
class Library:
    """FlashAttention's functions as documented, causal and paged only; notes how it was called."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def with_kvcache(self, query: Tensor, keys: Tensor, values: Tensor, **named: Any) -> Tensor:
        """FlashAttention-2's: query [rows, new tokens, heads, D]."""
        self.calls.append(("with_kvcache", {"query": query.shape, **named}))
        rows, length = query.shape[:2]
        starts = torch.arange(rows + 1, dtype=torch.int32) * length
        found = self._attend(query.flatten(0, 1), keys, values, starts, named)
        return found.view_as(query)

    def varlen(self, query: Tensor, keys: Tensor, values: Tensor, **named: Any) -> Tensor:
        self.calls.append(("varlen", {"query": query.shape, **named}))
        lengths = named["cu_seqlens_k"].diff()
        assert named["max_seqlen_q"] == named["cu_seqlens_q"].diff().max()
        assert named["max_seqlen_k"] == lengths.max()
        named = {**named, "cache_seqlens": lengths}
        return self._attend(query, keys, values, named["cu_seqlens_q"], named)

    def with_kvcache_3(self, query: Tensor, keys: Tensor, values: Tensor, **named: Any) -> Tensor:
        """FlashAttention-3's, query [T, heads, D] by `cu_seqlens_q`."""
        self.calls.append(("with_kvcache_3", {"query": query.shape, **named}))
        assert named["max_seqlen_q"] == named["cu_seqlens_q"].diff().max()
        named = {**named, "block_table": named["page_table"]}
        return self._attend(query, keys, values, named["cu_seqlens_q"], named)

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, starts: Tensor, named: dict[str, Any]
    ) -> Tensor:
        assert named["causal"] is True
        for name in ("block_table", "cache_seqlens"):
            assert named[name].dtype == torch.int32
        nothing = torch.zeros(0, dtype=torch.int32)
        causal = torch.full((len(query),), -1)
        table, lengths = named["block_table"], named["cache_seqlens"]
        batch = Batch(nothing, nothing, nothing, starts, lengths, table, causal, nothing)
        return attend(query, keys, values, batch)


def case(rows: list[tuple[int, int, Draft]]):
    generator = torch.Generator().manual_seed(1)
    blocks = Random(1).sample(range(BLOCKS), BLOCKS)
    layout = BatchBuilder(PAGE)
    for prefix, known, draft in rows:
        count = -(-(prefix + known + len(draft.tokens)) // PAGE)
        table = tuple(blocks.pop() for _ in range(count))
        layout.add([0] * known, prefix, table, draft, samples=True)
    batch = layout.batch(CPU)
    pages = [torch.randn(BLOCKS, PAGE, KV_HEADS, SIZE, generator=generator) for _ in range(2)]
    query = torch.randn(len(batch.tokens), HEADS, SIZE, generator=generator)
    return query, *pages, batch


DRAFT = chain((1, 2, 3), "test")
TREE = Draft((1, 2), (-1, -1), ("test",) * 2)
VERIFY = [(300, 1, DRAFT), (0, 1, DRAFT), (17, 1, DRAFT)]
MIXED = [(300, 1, DRAFT), (5, 40, NO_DRAFT), (17, 1, NO_DRAFT)]


def test_rows_of_one_length_share_a_call_that_splits_their_keys():
    library = Library()
    inputs = case(VERIFY)
    found = FlashAttention2(library.with_kvcache, library.varlen)(*inputs)
    torch.testing.assert_close(found, attend(*inputs))
    ((name, said),) = library.calls
    assert name == "with_kvcache"
    assert said["query"] == (3, 4, HEADS, SIZE)
    assert said["cache_seqlens"].tolist() == [304, 4, 21]
    assert said["block_table"].shape == (3, 2)


def test_rows_of_several_lengths_go_through_the_varlen_form():
    library = Library()
    inputs = case(MIXED)
    found = FlashAttention2(library.with_kvcache, library.varlen)(*inputs)
    torch.testing.assert_close(found, attend(*inputs))
    ((name, said),) = library.calls
    assert name == "varlen"
    assert said["cu_seqlens_q"].tolist() == [0, 4, 44, 45]
    assert said["cu_seqlens_k"].tolist() == [0, 304, 349, 367]
    assert said["cu_seqlens_k"].dtype == torch.int32


@pytest.mark.parametrize("rows", [VERIFY, MIXED])
def test_flash_attention_3_takes_every_round_in_one_form(rows):
    library = Library()
    inputs = case(rows)
    found = FlashAttention3(library.with_kvcache_3)(*inputs)
    torch.testing.assert_close(found, attend(*inputs))
    ((_, said),) = library.calls
    assert torch.equal(said["cu_seqlens_q"], inputs[-1].row_starts)


def test_trees_are_refused():
    library = Library()
    inputs = case([(30, 1, TREE)])
    for backend in (
        FlashAttention2(library.with_kvcache, library.varlen),
        FlashAttention3(library.with_kvcache_3),
    ):
        with pytest.raises(Refused, match="knows no trees"):
            backend(*inputs)
    assert library.calls == []


def test_trees_go_to_another_backend_where_there_is_one():
    library = Library()
    both = WithTrees(FlashAttention2(library.with_kvcache, library.varlen), attend)
    for rows, calls in (([(30, 1, TREE)], 0), (VERIFY, 1)):
        inputs = case(rows)
        torch.testing.assert_close(both(*inputs), attend(*inputs))
        assert len(library.calls) == calls
