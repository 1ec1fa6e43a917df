"""A random checkpoint of Qwen3.5's layers with an MTP layer, over the default model's tokens."""

import json
from pathlib import Path
from shutil import copy
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.inventory import inventory
from draftwerk.model.checkpoint.mtp_layer import ONE_LAYER

LAYERS, HIDDEN = 12, 768
CONFIG: dict[str, Any] = {
    **{"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"},
    **{"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "intermediate_size": 2048},
    **{"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128},
    **{"linear_num_key_heads": 8, "linear_num_value_heads": 8, "linear_conv_kernel_dim": 4},
    **{"linear_key_head_dim": 128, "linear_value_head_dim": 128, "full_attention_interval": 4},
    **{"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
    **{"partial_rotary_factor": 0.25, "bos_token_id": 1, "eos_token_id": 2},
}
SPREAD = 0.02
SURENESS = 10
"""On the head's weights: where all tokens are as likely, the noise that is known decides."""


def save_hybrid(directory: Path) -> None:
    """Write it, in bf16, with the default model's tokenizer."""
    hf = dict(completed({**CONFIG, "vocab_size": read_info(locate(None)).vocab_size}))
    stored = _random(hf, {"model.": "model.", "lm_head": "lm_head"})
    stored |= _random(
        {**hf, **ONE_LAYER}, {"model.layers.": "mtp.layers.", "model.norm": "mtp.norm"}
    )
    stored["mtp.fc.weight"] = SPREAD * torch.randn(HIDDEN, 2 * HIDDEN).bfloat16()
    for name in ("embedding", "hidden"):
        stored[f"mtp.pre_fc_norm_{name}.weight"] = torch.zeros(HIDDEN).bfloat16()
    save_file(stored, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(hf), encoding="utf-8")
    source = locate(None).directory
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        copy(source / name, directory)


def _random(hf: dict[str, Any], prefixes: dict[str, str]) -> dict[str, Tensor]:
    """Return the tensors that a config calls for and whose names begin so, by their new names."""
    found: dict[str, Tensor] = {}
    for name, shape in inventory(hf).required.items():
        prefix = next((each for each in prefixes if name.startswith(each)), None)
        if prefix is not None:
            value = SPREAD * torch.randn(shape)
            found[prefixes[prefix] + name.removeprefix(prefix)] = value.bfloat16()
    return found
