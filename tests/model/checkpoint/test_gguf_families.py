"""GGUF files of every family, as llama.cpp writes them, compute what Transformers computes."""

from pathlib import Path
from random import Random

import pytest
import torch

from draftwerk.model.attention.reference import attend
from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.gguf_card import write_card
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.protocol.rounds import NO_DRAFT
from tests.model.native.models import part, round_of
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import ROPES, VOCAB, oracle_logits, tiny_model

LONG = {**ROPES["longrope"], "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
LONG["short_factor"], LONG["long_factor"] = LONG["short_factor"][:4], LONG["long_factor"][:4]
CASES = {row.model_type: (row.model_type, {}) for row in ARCHITECTURES if row.gguf is not None} | {
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "exaone4, no window": (
        "exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "stablelm, norms of each head": ("stablelm", {"qk_layernorm": True}),
    "phi3, longrope": ("phi3", {"rope_parameters": LONG}),
    "phi3, window": ("phi3", {"sliding_window": 17}),
}
PATTERNS = {"gemma3_text": 6, "cohere2": 4}
"""What no file says."""
SIZES = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "rms_norm_eps": 1e-5}


@pytest.fixture(autouse=True)
def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of names is no vocabulary."""
    monkeypatch.setattr(gguf_file, "write_tokenizer", lambda *given: None)


@pytest.mark.parametrize(("family", "changes"), CASES.values(), ids=CASES)
def test_logits_equal_those_of_transformers(family, changes, tmp_path: Path) -> None:
    if period := PATTERNS.get(family):
        changes = {"sliding_window_pattern": period, "num_hidden_layers": period + 1}
    if family == "gpt_oss":  # no file says its limit
        changes = changes | {"swiglu_limit": 7.0}
    if family.startswith("gemma"):
        changes = changes | {"query_pre_attn_scalar": 8}
    if family == "smollm3":
        changes = {"no_rope_layers": None, "num_hidden_layers": 5}
    changes = SIZES | {"tie_word_embeddings": True} | changes
    oracle = tiny_model(family, **changes)
    path = save_gguf(tmp_path / "m.gguf", family, "F32", **changes)
    out = tmp_path / "out"
    out.mkdir()
    write_card(gguf_file.describe(path, "m", out, lambda _: None), out)
    model = load(str(out), torch.float32)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            if not (family.startswith(("gemma", "nemotron")) and name.endswith("norm.weight")):
                parameter.copy_(parameter.bfloat16())
    tokens = Random(1).choices(range(VOCAB), k=100)
    forward = TorchForward(model.config, model.weights, attend)
    pages = allocate(model.config, 64, 16, torch.float32, torch.device("cpu"))
    ours = forward(round_of([part(tokens, draft=NO_DRAFT)]), pages)
    assert (ours - oracle_logits(oracle, tokens)).abs().max() < 1e-4
