"""The adapters of FlashAttention, over a small real one made of the reference."""

import sys
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.flash import (
    FlashAttention2,
    FlashAttention3,
    flash_attention_2,
)
from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.signature import Scoring, WithFallback
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.gpu import choice
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from tests.support.runners import CPU

HEADS, KV_HEADS, SIZE, PAGE, BLOCKS = 4, 2, 16, 256, 12
WITH_KVCACHE = (
    *("q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens"),
    *("cache_batch_idx", "cache_leftpad", "block_table", "softmax_scale", "causal", "window_size"),
    *("softcap", "rotary_interleaved", "alibi_slopes", "num_splits", "return_softmax_lse"),
)
VARLEN = (
    *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "dropout_p"),
    *("softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic"),
    *("return_attn_probs", "block_table"),
)
WITH_KVCACHE_3 = (
    *("q", "k_cache", "v_cache", "k", "v", "qv", "rotary_cos", "rotary_sin", "cache_seqlens"),
    *("cache_batch_idx", "cache_leftpad", "page_table", "cu_seqlens_q", "cu_seqlens_k_new"),
    *("max_seqlen_q", "rotary_seqlens", "q_descale", "k_descale", "v_descale", "softmax_scale"),
    *("causal", "window_size", "attention_chunk", "softcap", "rotary_interleaved"),
    *("scheduler_metadata", "num_splits", "pack_gqa", "sm_margin", "return_softmax_lse"),
)
"""Parameters of flash-attn 2.8.3.post1, the same in 2.8.4 (0251105a), and of its folder hopper."""


def check_call(parameters: tuple[str, ...], pages: int, tensors: list[Tensor], named: dict) -> None:
    """Hold a call to the checks of those versions' flash_api.cpp; pages of a multiple of slots."""
    query, keys, values = tensors
    assert named.keys() <= {*parameters[3:]}
    assert query.dtype == keys.dtype == values.dtype
    assert all(tensor.stride(-1) == 1 for tensor in tensors)
    assert query.shape[-1] <= 256 and query.shape[-1] % 8 == 0
    assert query.shape[-2] % keys.shape[2] == 0
    assert keys.shape == values.shape and keys.shape[1] % pages == 0
    table = named.get("block_table", named.get("page_table"))
    assert table is not None and table.dtype == torch.int32 and table.stride(-1) == 1
    rows = len(table)
    assert rows > 0 and ("cu_seqlens_q" in named or query.shape[0] == rows)
    for name, count in (("cache_seqlens", rows), *((f"cu_seqlens_{x}", rows + 1) for x in "qk")):
        if (lengths := named.get(name)) is not None:
            assert lengths.dtype == torch.int32 and lengths.is_contiguous()
            assert lengths.shape == (count,)
    if (lengths := named.get("cache_seqlens")) is not None:
        assert lengths.max() <= table.shape[1] * keys.shape[1]
    if "cu_seqlens_q" in named:
        assert named["max_seqlen_q"] is not None
    assert not ("page_table" in named and "cu_seqlens_k" in named)


@dataclass
class Library:
    """FlashAttention's functions as documented, causal and paged only; notes how it was called."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def with_kvcache(self, query: Tensor, keys: Tensor, values: Tensor, **named: Any) -> Tensor:
        """FlashAttention-2's: query [rows, new tokens, heads, D]."""
        check_call(WITH_KVCACHE, 256, [query, keys, values], named)
        self.calls.append(("with_kvcache", {"query": query.shape, **named}))
        rows, length = query.shape[:2]
        starts = torch.arange(rows + 1, dtype=torch.int32) * length
        found = self._attend(query.flatten(0, 1), keys, values, starts, named)
        return found.view_as(query)

    def varlen(self, query: Tensor, keys: Tensor, values: Tensor, **named: Any) -> Tensor:
        check_call(VARLEN, 256, [query, keys, values], named)
        self.calls.append(("varlen", {"query": query.shape, **named}))
        lengths = named["cu_seqlens_k"].diff()
        assert named["max_seqlen_q"] == named["cu_seqlens_q"].diff().max()
        assert named["max_seqlen_k"] == lengths.max()
        named = {**named, "cache_seqlens": lengths}
        return self._attend(query, keys, values, named["cu_seqlens_q"], named)

    def with_kvcache_3(self, query: Tensor, keys: Tensor, values: Tensor, **named: Any) -> Tensor:
        """FlashAttention-3's, query [T, heads, D] by `cu_seqlens_q`."""
        check_call(WITH_KVCACHE_3, 1, [query, keys, values], named)
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
        left, right = named.get("window_size", (-1, -1))
        assert right == (-1 if left < 0 else 0)
        scale, softcap = named.get("softmax_scale", 0.0), named.get("softcap", 0.0)
        return attend(query, keys, values, batch, Scoring(scale, softcap, left + 1))


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


@pytest.mark.parametrize("rows", [VERIFY, MIXED])
@pytest.mark.parametrize("scoring", [Scoring(window=9), Scoring(0.3, 20.0), Scoring(0.0, 5.0, 33)])
def test_windows_caps_and_scales_have_the_libraries_names(rows, scoring: Scoring):
    library, inputs = Library(), case(rows)
    expected = attend(*inputs, scoring)
    two = FlashAttention2(library.with_kvcache, library.varlen)
    for backend in (two, FlashAttention3(library.with_kvcache_3)):
        torch.testing.assert_close(backend(*inputs, scoring), expected)


def test_what_the_library_does_not_serve_goes_to_another_backend():
    library = Library()
    both = WithFallback(FlashAttention3(library.with_kvcache_3), attend)
    for rows, scoring, calls in (
        (MIXED, Scoring(window=9), 1),
        (MIXED, Scoring(sinks=torch.randn(HEADS)), 1),
        ([(30, 1, TREE)], Scoring(window=9), 1),
    ):
        inputs = case(rows)
        torch.testing.assert_close(both(*inputs, scoring), attend(*inputs, scoring))
        assert len(library.calls) == calls


def installed(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> Library:
    """Put a library where the import finds it."""
    library, module = Library(), ModuleType(name)
    two = name == "flash_attn"
    module.__dict__.update(
        __version__=version,
        flash_attn_with_kvcache=library.with_kvcache if two else library.with_kvcache_3,
        flash_attn_varlen_func=library.varlen,
    )
    monkeypatch.setitem(sys.modules, name, module)
    return library


@pytest.mark.parametrize(
    ("version", "form"), [("2.8.3.post1", "with_kvcache"), ("2.8.4", "varlen")]
)
def test_no_call_that_a_graph_cannot_record_is_made(version, form, monkeypatch):
    """From 2.8.4 on `flash_attn_with_kvcache` reads the longest length back to check it."""
    library = installed(monkeypatch, "flash_attn", version)
    inputs = case(VERIFY)
    torch.testing.assert_close(flash_attention_2()(*inputs), attend(*inputs))
    assert [name for name, _ in library.calls] == [form]


def test_a_namespace_package_of_that_name_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    with pytest.raises(Refused, match="not the library"):
        flash_attention_2()


CUDA = torch.device("cuda")
BOTH = {"flash_attn": "2.8.3", "flash_attn_interface": "3"}
AUTO = {
    "nothing installed": ({}, 9, {"block_size": 256}, "triton"),
    "pages of 16": (BOTH, 8, {}, "triton"),
    "pages of 256": (BOTH, 8, {"block_size": 256}, "flash_attn"),
    "Hopper": (BOTH, 9, {}, "flash_attn_3"),
    "exact": (BOTH, 9, {"exact": True}, "triton"),
    "fp8 pages": (BOTH, 9, {"fp8": True}, "triton"),
    "float32": (BOTH, 9, {"dtype": torch.float32}, "triton"),
    "large heads": (BOTH, 9, {"head_size": 512}, "triton"),
}


@pytest.mark.parametrize(("modules", "generation", "needs", "name"), AUTO.values(), ids=AUTO)
def test_auto_takes_the_best_that_can_run(modules, generation, needs, name, monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    for module in BOTH:
        monkeypatch.setitem(sys.modules, module, None)
    for module, version in modules.items():
        installed(monkeypatch, module, version)
    monkeypatch.setattr(choice, "_generation", lambda device: generation)
    chosen = choice.choose_attention("auto", choice.Needs(CUDA, **needs))
    assert chosen.name == name
    # FlashAttention-3 is looked for on Hopper alone, and the rest in order.
    better = list(choice.AUTOMATIC["cuda"][generation != 9 :])
    assert len(chosen.passed_over) == better.index(name)


def test_auto_says_which_pages_flash_attention_would_need(monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    installed(monkeypatch, "flash_attn", "2.8.3")
    monkeypatch.setattr(choice, "_generation", lambda device: 8)
    (reason,) = choice.choose_attention("auto", choice.Needs(CUDA)).passed_over
    assert "--block-size 256" in reason


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
    both = WithFallback(FlashAttention2(library.with_kvcache, library.varlen), attend)
    for rows, calls in (([(30, 1, TREE)], 0), (VERIFY, 1)):
        inputs = case(rows)
        torch.testing.assert_close(both(*inputs), attend(*inputs))
        assert len(library.calls) == calls
