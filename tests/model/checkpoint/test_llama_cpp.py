"""Every family beside llama.cpp, of the same file; LLAMA_CPP is a folder with its library.

`npm pack @node-llama-cpp/linux-x64` brings one. The files are tiny, random and in F32, with tensors
named and ordered as llama.cpp's converter does it.
"""

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.support.llama_library import LlamaModel
from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from tests.model.native.models import part, random_pages, round_of
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import GEMMA4_EXPERTS, VOCAB

LIBRARY = os.environ.get("LLAMA_CPP", "")
KL_MAX = 1e-6
LENGTH = 200
DELTA = {"linear_value_head_dim": 8, "rms_norm_eps": 1e-6}
"""One size of keys and values, and the epsilon of norms for that of keys too."""
TIED = {"tie_word_embeddings": True}
CHANGES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "cohere", "cohere2"), TIED),
    # It takes shared keys for those of the two layers before, one with a window and one without.
    "gemma4_text": {"num_kv_shared_layers": 2, **TIED},
    "olmoe": {"num_key_value_heads": 4},
    "arcee": {"mlp_bias": False},
    "ernie4_5": {"use_bias": False},
    "starcoder2": {"sliding_window": None},
    "stablelm": {"qk_layernorm": True},
    "gpt_oss": {"rope_parameters": {"rope_type": "default", "rope_theta": 150_000.0}},
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), DELTA),
    "lfm2_moe": {**TIED, "routed_scaling_factor": 1.0},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
}
"""Where llama.cpp knows less of a family (biases, KV heads, windows of small models), or more."""
CASES = {row.model_type: (row.model_type, {}) for row in ARCHITECTURES if row.gguf} | {
    "gemma4, experts": ("gemma4_text", GEMMA4_EXPERTS)
}


@pytest.mark.usefixtures("no_tokenizer", "own_cache")
@pytest.mark.skipif(not LIBRARY, reason="LLAMA_CPP names no folder with llama.cpp's library")
@pytest.mark.parametrize(("family", "own"), CASES.values(), ids=CASES)
def test_distributions_are_those_of_llama_cpp(
    family: str, own: dict[str, Any], tmp_path: Path
) -> None:
    changes = {"tie_word_embeddings": False, **CHANGES.get(family, {}), **own}
    path = save_gguf(tmp_path / "m.gguf", family, "F32", **changes)
    tokens = Random(1).choices(range(3, VOCAB), k=LENGTH)
    peer = LlamaModel(Path(LIBRARY), path, 1, LENGTH, "", is_exact=True)
    assert divergence(our_logits(path, tokens), peer.logits(tokens)) < KL_MAX
    peer.close()


def our_logits(path: Path, tokens: list[int]) -> NDArray[np.float32]:
    model = load(str(path), torch.float32)
    forward = NativeForward(model.config, model.weights, "fp32", Pool())
    pages = random_pages(model.config, forward.page_dtype, width=forward.page_width)
    return forward(round_of([part(tokens, 0)]), pages).numpy()


def divergence(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Return the mean KL divergence of the distributions behind each token, in nats."""
    first, second = (torch.from_numpy(each).double().log_softmax(-1) for each in (theirs, ours))
    return float((first.exp() * (first - second)).sum(-1).mean())
