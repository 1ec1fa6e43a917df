"""The native forward computes every family as Transformers does, to the same bits in company."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.speculative.rounds import Draft
from tests.model.native.models import part, random_pages, round_of
from tests.support.drawn_sizes import CHOICES, drawn_sizes
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import (
    CASES,
    GEMMA4_EXPERTS,
    VOCAB,
    has_delta_rule,
    oracle_logits,
    own_rounding,
    save_tiny,
    tiny_model,
)

TOKENS = Random(1).choices(range(VOCAB), k=300)
OF_256: dict[str, Any] = {
    **{"hidden_size": 256, "intermediate_size": 256, "head_dim": 64},
    **{"moe_intermediate_size": 256, "shared_expert_intermediate_size": 256},
    **{"linear_num_value_heads": 4, "linear_value_head_dim": 64, "shared_intermediate_size": 256},
    **{"global_head_dim": 128, "hidden_size_per_layer_input": 256},
}
"""Every width a whole block of 256."""
SLOW = ("qwen3_5_moe_text", "qwen3_next", "granitemoehybrid")
"""Families whose recurrence takes Transformers long in bf16; `qwen3_5_text` is for all."""
KINDS = ("fp32", "bf16", "int8", "int4 int8")
"""Of which the gate gives a family every other one, and the next family the others."""


def forward_of(directory: Path, kind: str, pool: Pool) -> NativeForward:
    dtype, kv_dtype = (*kind.split(), "auto")[:2]
    model = load(str(directory), torch.float32 if dtype == "fp32" else None)
    if model.config.kernel_size:  # int8 is refused
        kv_dtype = "auto"
    return NativeForward(model.config, model.weights, dtype, pool, kv_dtype)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what saves a family's model once, for all who only read it."""

    @cache
    def saved(family: str) -> Path:
        path: Path = tmp_path_factory.mktemp("family")
        save_tiny(path, family)
        return path

    return saved


def pages_of(forward: NativeForward):
    return random_pages(forward._config, forward.page_dtype, width=forward.page_width)


def in_chunks(forward: NativeForward, bounds: list[int]) -> Tensor:
    pages = pages_of(forward)
    found: list[Tensor] = []
    for number, (a, b) in enumerate(pairwise(bounds)):
        state = RowState(number % 2 if a else -1, 1 - number % 2)
        found.append(forward(round_of([part(TOKENS[a:b], a, state=state)]), pages))
    return torch.cat(found)


@pytest.mark.parametrize(("family", "changes"), CASES.values(), ids=CASES)
def test_logits_equal_those_of_transformers(family, changes, tmp_path: Path, pool: Pool) -> None:
    oracle = save_tiny(tmp_path, family, **changes)
    forward = forward_of(tmp_path, "fp32", pool)
    # A delta rule's oracle computes token by token; beyond, a token's bits are compared below.
    bounds = [0, 70, 71, 140, 150] if has_delta_rule(oracle) else [0, 150, 151, 290, 300]
    ours = in_chunks(forward, bounds)
    assert (ours - oracle_logits(oracle, TOKENS[: bounds[-1]])).abs().max() < 2e-4


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("family", CHOICES)
def test_so_do_those_of_sizes_drawn_at_random(
    family: str, seed: int, tmp_path: Path, pool: Pool
) -> None:
    oracle = save_tiny(tmp_path, family, seed, **drawn_sizes(family, seed))
    forward = forward_of(tmp_path, "fp32", pool)
    ours, tokens = in_chunks(forward, [0, 37, 38, 80]), TOKENS[:80]
    difference = float((ours - oracle_logits(oracle, tokens)).abs().max())
    # A delta rule amplifies rounding, of Transformers as well.
    assert difference < 1e-4 or difference < 10 * own_rounding(oracle, tokens)
    compare_in_company(forward, forward_of(tmp_path, "fp32", Pool(1)))


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(row.model_type, marks=pytest.mark.grid if row.model_type in SLOW else ())
        for row in ARCHITECTURES
    ],
)
def test_bf16_is_close_to_transformers_in_bf16(family: str, tmp_path: Path, pool: Pool) -> None:
    oracle = save_tiny(tmp_path, family).to(torch.bfloat16)
    oracle.save_pretrained(tmp_path)
    forward = forward_of(tmp_path, "bf16", pool)
    ours, theirs = in_chunks(forward, [0, 300]), oracle_logits(oracle, TOKENS).float()
    assert (ours - theirs).abs().mean() < 0.02 * theirs.abs().max()


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        pytest.param(row.model_type, kind, marks=pytest.mark.grid if at % 2 != of % 2 else ())
        for of, row in enumerate(ARCHITECTURES)
        for at, kind in enumerate(KINDS)
    ],
)
def test_a_token_has_the_same_bits_in_any_company(
    family: str, kind: str, folders: Callable[[str], Path], pool: Pool
) -> None:
    path = folders(family)
    compare_in_company(forward_of(path, kind, pool), forward_of(path, kind, Pool(1)))


@torch.no_grad()
def test_of_equal_scores_the_earlier_expert_is_taken(tmp_path: Path, pool: Pool) -> None:
    model = tiny_model("qwen3_moe", num_experts=40, num_experts_per_tok=1)
    found: list[Tensor] = []
    for scale in (1.0, 2.0):
        for name, tensor in model.state_dict().items():
            if name.endswith("mlp.gate.weight"):
                tensor[20:] = tensor[:20]
            elif "experts" in name:
                tensor[20:] *= scale
        model.save_pretrained(tmp_path)
        found.append(in_chunks(forward_of(tmp_path, "fp32", pool), [0, 300]))
    assert torch.equal(*found)


def test_more_experts_than_there_is_room_for_are_refused(tmp_path: Path, pool: Pool) -> None:
    save_tiny(tmp_path, "qwen3_moe", num_experts=1025, moe_intermediate_size=1)
    with pytest.raises(NativeUnavailable, match="too many experts"):
        forward_of(tmp_path, "fp32", pool)


@pytest.mark.parametrize("family", [row.model_type for row in ARCHITECTURES if row.gguf])
@pytest.mark.usefixtures("own_cache", "no_tokenizer")
def test_so_it_has_with_a_file_of_blocks(family: str, tmp_path: Path, pool: Pool) -> None:
    kinds = {"ffn_down": "Q8_0"}
    fuses = family in ("olmoe", "gpt_oss")
    compare_blocks(save_gguf(tmp_path / "m.gguf", family, "Q4_0", kinds, fuses=fuses), pool)


@pytest.mark.parametrize(
    "family", ["qwen3_5_moe_text", "qwen3_next", "granitemoehybrid", "gemma4_text"]
)
@pytest.mark.usefixtures("own_cache", "no_tokenizer")
def test_so_it_has_with_a_file_of_k_quants(family: str, tmp_path: Path, pool: Pool) -> None:
    kinds = {"attn_gate": "Q5_K", "ssm_out": "Q6_K", "ffn_down": "Q6_K", "ssm_beta": "Q8_0"}
    kinds |= {"per_layer_token_embd": "Q5_K", "inp_gate": "Q6_K", "per_layer_model_proj": "BF16"}
    compare_blocks(save_gguf(tmp_path / "m.gguf", family, "Q4_K", kinds, **OF_256), pool)


@pytest.mark.parametrize("kind", KINDS)
def test_so_it_has_with_experts_beside_a_dense_ffn(kind: str, tmp_path: Path, pool: Pool) -> None:
    save_tiny(tmp_path, "gemma4_text", **GEMMA4_EXPERTS)
    compare_in_company(forward_of(tmp_path, kind, pool), forward_of(tmp_path, kind, Pool(1)))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K"])
@pytest.mark.usefixtures("own_cache", "no_tokenizer")
def test_so_it_has_with_a_file_of_these(kind: str, tmp_path: Path, pool: Pool) -> None:
    sizes: dict[str, Any] = GEMMA4_EXPERTS | OF_256 | {"hidden_size_per_layer_input": 0}
    kinds = {"ffn_down_exps": "Q8_0" if kind == "Q4_0" else "Q6_K"}
    compare_blocks(save_gguf(tmp_path / "m.gguf", "gemma4_text", kind, kinds, **sizes), pool)


def compare_blocks(path: Path, pool: Pool) -> None:
    """Compare a file's blocks in any company, and with what they stand for."""
    blocks = load(str(path), None, keeps_blocks=True)
    forwards = [
        NativeForward(blocks.config, blocks.weights, STORED, each) for each in (pool, Pool(1))
    ]
    compare_in_company(*forwards)
    plain = load(str(path), torch.float32)
    exact = in_chunks(NativeForward(plain.config, plain.weights, "fp32", pool), [0, 300])
    rough = in_chunks(forwards[0], [0, 300])
    assert (rough - exact).abs().mean() < 0.06 * exact.abs().max()


def compare_in_company(forward: NativeForward, alone: NativeForward) -> None:
    """Compare chunks, trees and a pool of one thread."""
    whole = in_chunks(forward, [0, 300])
    for bounds in ([*range(0, 300, 61), 300], [0, 129, *range(130, 140), 300]):
        assert torch.equal(in_chunks(forward, bounds), whole)
    assert torch.equal(in_chunks(alone, [0, 200, 300]), whole)
    for prefix in (3, 124, 250):
        assert torch.equal(_through_a_tree(forward, prefix), whole[prefix - 1 : prefix + 6])


def _through_a_tree(forward: NativeForward, prefix: int) -> Tensor:
    """Return the logits of seven tokens that are spread over a tree with other branches."""
    pages = pages_of(forward)
    forward(round_of([part(TOKENS[: prefix - 1])]), pages)
    tokens, parents, path, last = list[int](), list[int](), list[int](), -1
    for depth, token in enumerate(TOKENS[prefix : prefix + 6]):
        for wrong in range(depth % 3):
            tokens.append((token + 1 + wrong) % VOCAB)
            parents.append(last)
        path.append(len(tokens))
        tokens.append(token)
        parents.append(last)
        last = path[-1]
    draft = Draft(tuple(tokens), tuple(parents), ("",) * len(tokens))
    state = RowState(1, 0)
    row = part(TOKENS[prefix - 1 : prefix], prefix - 1, draft=draft, state=state)
    logits = forward(round_of([row]), pages)
    return logits[[0, *(1 + node for node in path)]]
