"""GGUF files of every family, as llama.cpp writes them, compute what Transformers computes."""

from pathlib import Path
from random import Random
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from draftwerk.model.attention.reference import attend
from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.gguf_card import GgufCard, write_card
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.rounds import NO_DRAFT
from tests.model.native.models import part, round_of
from tests.support.gguf_of_hybrids import has_offset
from tests.support.tiny_gguf import said_by_files, save_gguf
from tests.support.tiny_models import (
    GEMMA4_EXPERTS,
    ROPES,
    VOCAB,
    oracle_logits,
    own_rounding,
    tiny_model,
)
from training.bf16_copy import write_copy

LONG = {**ROPES["longrope"], "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
LONG["short_factor"], LONG["long_factor"] = LONG["short_factor"][:4], LONG["long_factor"][:4]
CASES = {row.model_type: (row.model_type, {}) for row in ARCHITECTURES if row.gguf is not None} | {
    "granite 4, no biases": ("granitemoehybrid", {"mamba_conv_bias": False}),
    "granite 4, no experts": ("granitemoehybrid", {"num_local_experts": 0}),
    **{
        f"{family}, gates and ups in one": (family, {"fuses": True})
        for family in ("qwen3_moe", "gpt_oss")
    },
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "exaone4, no window": (
        "exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "stablelm, norms of each head": ("stablelm", {"qk_layernorm": True}),
    "gemma4, keys that are values": (
        "gemma4_text",
        {
            **{"attention_k_eq_v": True, "num_global_key_value_heads": 1},
            **{"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
        },
    ),
    "gemma4, experts": ("gemma4_text", GEMMA4_EXPERTS),
    "gemma4, experts, embeddings of each layer": (
        "gemma4_text",
        GEMMA4_EXPERTS | {"hidden_size_per_layer_input": 8},
    ),
    "qwen3 next, three taps": ("qwen3_next", {"linear_conv_kernel_dim": 3}),
    "phi3, longrope": ("phi3", {"rope_parameters": LONG}),
    "phi3, window": ("phi3", {"sliding_window": 17}),
}


@pytest.fixture(autouse=True)
def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of names is no vocabulary."""
    monkeypatch.setattr(gguf_file, "write_tokenizer", lambda *given: None)


@pytest.mark.parametrize(("family", "changes"), CASES.values(), ids=CASES)
def test_logits_equal_those_of_transformers(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    changes = said_by_files(family, changes)
    path = save_gguf(tmp_path / "m.gguf", family, "F32", **changes)
    oracle = tiny_model(family, **{key: changes[key] for key in changes if key != "fuses"})
    out = tmp_path / "out"
    out.mkdir()
    write_card(gguf_file.describe(path, "m", out, lambda _: None), out)
    model = load(str(out), torch.float32)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            if not has_offset(name, family):
                parameter.copy_(parameter.bfloat16())
    tokens = Random(1).choices(range(VOCAB), k=100)
    forward = TorchForward(model.config, model.weights, attend)
    pages = allocate(model.config, 64, 16, torch.float32, torch.device("cpu"))
    ours = forward(round_of([part(tokens, draft=NO_DRAFT)]), pages)
    difference = float((ours - oracle_logits(oracle, tokens)).abs().max())
    # Experts that all but tie, and norms of little, amplify rounding: Transformers' own as well.
    assert difference < 1e-4 or difference < 2 * own_rounding(oracle, tokens)


def described(path: Path, directory: Path) -> GgufCard:
    directory.mkdir()
    return gguf_file.describe(path, "m", directory, lambda _: None)


def test_layers_that_draft_are_left_out(tmp_path: Path) -> None:
    def add_layer(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(5)
        writer.add_nextn_predict_layers(1)
        writer.add_tensor("blk.4.nextn.eh_proj.weight", np.zeros((64, 128), np.float32))

    path = save_gguf(tmp_path / "m.gguf", "qwen3_5_text", "F32", more=add_layer)
    card = described(path, tmp_path / "out")
    assert not any(".layers.4." in name for name in card.tensors)
    assert read_config(tmp_path / "out").layer_count == 4


def test_scores_that_are_no_sigmoids_are_refused(tmp_path: Path) -> None:
    def add_scores(writer: gguf.GGUFWriter) -> None:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)

    path = save_gguf(tmp_path / "m.gguf", "lfm2_moe", "F32", more=add_scores)
    with pytest.raises(Refused, match="expert_gating_func 1 is not supported"):
        described(path, tmp_path / "out")


def test_inputs_of_all_in_one_matrix_are_refused(tmp_path: Path) -> None:
    """As the first files of Qwen3-Next have them."""

    def add_inputs(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.ssm_in.weight", np.zeros((224, 64), np.float32))

    path = save_gguf(tmp_path / "m.gguf", "qwen3_next", "F32", more=add_inputs)
    with pytest.raises(Refused, match=r"'blk.0.ssm_in.weight' is not supported"):
        described(path, tmp_path / "out")


def test_recurrent_layers_are_not_written_as_safetensors(tmp_path: Path) -> None:
    path = save_gguf(tmp_path / "m.gguf", "qwen3_5_text", "F32")
    card = described(path, tmp_path / "out")
    with pytest.raises(Refused, match="recurrent layers cannot be written"):
        write_copy(card, tmp_path / "out", tmp_path / "copy")
