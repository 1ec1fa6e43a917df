"""An EAGLE-3 head with random weights, of a target's shape."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate

GUESSED = 32_000
"""Tokens, at most: what published heads guess."""
SPREAD = 0.02


def save_eagle(directory: Path, target: str | None) -> None:
    """Write a head for a target, in bf16."""
    config = read_config(locate(target).directory)
    hidden, ffn, guessed = config.hidden_size, config.ffn_size, min(GUESSED, config.vocab_size)
    heads, key_heads = (config.head_size * n for n in (config.num_heads, config.num_kv_heads))
    shapes = {"fc": (hidden, 3 * hidden), "lm_head": (guessed, hidden), "norm": (hidden,)}
    attention = {
        "q": (heads, 2 * hidden),
        "k": (key_heads, 2 * hidden),
        "v": (key_heads, 2 * hidden),
    }
    attention["o"] = (hidden, heads)
    shapes |= {f"midlayer.self_attn.{name}_proj": shape for name, shape in attention.items()}
    mlp = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    shapes |= {f"midlayer.mlp.{name}_proj": shape for name, shape in mlp.items()}
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    shapes |= {f"midlayer.{name}": (hidden,) for name in norms}
    stored = {
        f"{name}.weight": (SPREAD * torch.randn(shape) + (len(shape) == 1)).bfloat16()
        for name, shape in shapes.items()
    }
    save_file(stored, directory / "model.safetensors")
    hf: dict[str, Any] = {
        **{"vocab_size": config.vocab_size, "draft_vocab_size": guessed},
        **{"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": 1},
        **{"num_attention_heads": config.num_heads, "num_key_value_heads": config.num_kv_heads},
        **{"head_dim": config.head_size, "max_position_embeddings": config.context_max},
        **{"rms_norm_eps": config.norm_eps, "hidden_act": "silu"},
    }
    (directory / "config.json").write_text(json.dumps(hf), encoding="utf-8")
