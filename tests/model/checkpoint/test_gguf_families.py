"""GGUF files of every family, as llama.cpp writes them, compute what Transformers computes."""

from pathlib import Path
from random import Random
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.gguf_card import write_card
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.runners import plain_logits
from tests.support.tiny_gguf import as_in_file, described, said_by_files, save_gguf
from tests.support.tiny_models import CASES as MODELS
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
    **{name: MODELS[name] for name in ("gemma4, keys that are values", "gemma4, experts")},
    "gemma4, experts, embeddings of each layer": (
        "gemma4_text",
        GEMMA4_EXPERTS | {"hidden_size_per_layer_input": 8},
    ),
    "qwen3 next, three taps": ("qwen3_next", {"linear_conv_kernel_dim": 3}),
    "phi3, longrope": ("phi3", {"rope_parameters": LONG}),
    "phi3, window": ("phi3", {"sliding_window": 17}),
}


pytestmark = pytest.mark.usefixtures("no_tokenizer")


@pytest.mark.parametrize(("family", "changes"), CASES.values(), ids=CASES)
def test_logits_equal_those_of_transformers(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    changes = said_by_files(family, changes)
    path = save_gguf(tmp_path / "m.gguf", family, "F32", **changes)
    own = {key: changes[key] for key in changes if key != "fuses"}
    oracle = as_in_file(tiny_model(family, **own), family)
    out = tmp_path / "out"
    write_card(described(path, out), out)
    model = load(str(out), torch.float32)
    tokens = Random(1).choices(range(VOCAB), k=100)
    ours = plain_logits(model.config, model.weights, tokens)
    difference = float((ours - oracle_logits(oracle, tokens)).abs().max())
    # Experts that all but tie, and norms of little, amplify rounding: Transformers' own as well.
    assert difference < 1e-4 or difference < 2 * own_rounding(oracle, tokens)


def test_layers_that_draft_are_left_out(tmp_path: Path) -> None:
    def add_layer(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(5)
        writer.add_nextn_predict_layers(1)
        writer.add_tensor("blk.4.nextn.eh_proj.weight", np.zeros((64, 128), np.float32))

    path = save_gguf(tmp_path / "m.gguf", "qwen3_5_text", "F32", more=add_layer)
    card = described(path, tmp_path / "out")
    assert not any(".layers.4." in name for name in card.tensors)
    assert read_config(tmp_path / "out").layer_count == 4


def add_softmax(writer: gguf.GGUFWriter) -> None:
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)


def add_inputs_in_one_matrix(writer: gguf.GGUFWriter) -> None:
    """As the first files of Qwen3-Next have them."""
    writer.add_tensor("blk.0.ssm_in.weight", np.zeros((224, 64), np.float32))


@pytest.mark.parametrize(
    ("family", "more", "said"),
    [
        ("lfm2_moe", add_softmax, "expert_gating_func 1 is not supported"),
        ("qwen3_next", add_inputs_in_one_matrix, "'blk.0.ssm_in.weight' is not supported"),
    ],
)
def test_what_a_graph_does_not_have_is_refused(family, more, said, tmp_path: Path) -> None:
    path = save_gguf(tmp_path / "m.gguf", family, "F32", more=more)
    with pytest.raises(Refused, match=said):
        described(path, tmp_path / "out")


def test_recurrent_layers_are_not_written_as_safetensors(tmp_path: Path) -> None:
    path = save_gguf(tmp_path / "m.gguf", "qwen3_5_text", "F32")
    card = described(path, tmp_path / "out")
    with pytest.raises(Refused, match="recurrent layers cannot be written"):
        write_copy(card, tmp_path / "out", tmp_path / "copy")
