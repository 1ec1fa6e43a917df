"""FlashAttention-3 as it is carried: what calls its operator has the operator's own arguments."""

import runpy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.carry import ADAPTER
from draftwerk.model.attention.flash import FlashAttention3
from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.signature import Scoring
from tests.model.attention.test_flash_attention import MIXED, VERIFY, Library, case

ARGUMENTS = (
    *("Tensor q", "Tensor k", "Tensor v"),
    *(f"Tensor? {name}" for name in ("k_new", "v_new", "q_v", "out", "cu_seqlens_q")),
    *(f"Tensor? {name}" for name in ("cu_seqlens_k", "cu_seqlens_k_new", "seqused_q")),
    *("Tensor? seqused_k", "int? max_seqlen_q", "int? max_seqlen_k", "Tensor? page_table"),
    *(f"Tensor? {name}" for name in ("kv_batch_idx", "leftpad_k", "rotary_cos", "rotary_sin")),
    *(f"Tensor? {name}" for name in ("seqlens_rotary", "q_descale", "k_descale", "v_descale")),
    *("float softmax_scale", "bool is_causal", "int window_size_left", "int window_size_right"),
    *("float softcap", "bool is_rotary_interleaved", "Tensor? scheduler_metadata"),
    *("int num_splits", "bool? pack_gqa", "int sm_margin", "Tensor? s_aux", "int cp_world_size"),
    *("int cp_rank", "Tensor? cp_tot_seqused_k"),
)
"""The operator's, as the shared object in vLLM 0.25.1's wheel registers it."""
NAMES = [argument.split()[-1] for argument in ARGUMENTS]


@pytest.fixture(scope="module")
def calls() -> Iterator[list[dict[str, Any]]]:
    """An operator of that name and schema, over the reference; what it was called with."""
    noted: list[dict[str, Any]] = []

    def forward(*arguments: Any) -> list[Tensor]:
        named = dict(zip(NAMES, arguments, strict=True))
        noted.append(named)
        said = {
            "cache_seqlens": named["seqused_k"],
            "page_table": named["page_table"],
            "cu_seqlens_q": named["cu_seqlens_q"],
            "max_seqlen_q": named["max_seqlen_q"],
            "causal": named["is_causal"],
        }
        return [Library().with_kvcache_3(named["q"], named["k"], named["v"], **said)]

    library = torch.library.Library("_vllm_fa3_C", "DEF")
    library.define(f"fwd({', '.join(ARGUMENTS)}) -> Tensor[]")
    library.impl("fwd", forward, "CPU")
    yield noted
    library._destroy()


@pytest.fixture
def backend(calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> FlashAttention3:
    calls.clear()
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    return FlashAttention3(runpy.run_path(str(ADAPTER))["flash_attn_with_kvcache"])


@pytest.mark.parametrize("rows", [VERIFY, MIXED])
def test_rounds_reach_the_operator(rows, backend, calls):
    inputs = case(rows)
    torch.testing.assert_close(backend(*inputs), attend(*inputs))
    (said,) = calls
    assert said["softmax_scale"] == inputs[0].shape[-1] ** -0.5
    assert (said["window_size_left"], said["window_size_right"], said["softcap"]) == (-1, -1, 0.0)
    assert said["max_seqlen_k"] == said["page_table"].shape[1] * inputs[1].shape[1]
    assert (said["cp_world_size"], said["cp_rank"]) == (1, 0)


def test_scores_of_other_families_reach_it(backend, calls):
    backend(*case(MIXED), Scoring(scale=0.5, softcap=30.0, window=17))
    (said,) = calls
    assert (said["softmax_scale"], said["softcap"]) == (0.5, 30.0)
    assert (said["window_size_left"], said["window_size_right"]) == (16, 0)
