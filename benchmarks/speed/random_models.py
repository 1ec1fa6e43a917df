"""Random checkpoints over the default model's tokens, in bf16, and what drafts for them."""

import json
from math import log, sqrt
from pathlib import Path
from shutil import copy
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.inventory import inventory
from draftwerk.model.checkpoint.mtp_layer import ONE_LAYER

GUESSED = 32_000
"""Tokens, at most: what published EAGLE-3 heads guess."""
SPREAD = 0.02
HIDDEN = 768
HYBRID: dict[str, Any] = {
    **{"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"},
    **{"num_hidden_layers": 12, "hidden_size": HIDDEN, "intermediate_size": 2048},
    **{"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128},
    **{"linear_num_key_heads": 8, "linear_num_value_heads": 8, "linear_conv_kernel_dim": 4},
    **{"linear_key_head_dim": 128, "linear_value_head_dim": 128, "full_attention_interval": 4},
    **{"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
    **{"partial_rotary_factor": 0.25, "bos_token_id": 1, "eos_token_id": 2},
}
LLAMA: dict[str, Any] = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    **{"hidden_size": 2048, "intermediate_size": 8192},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64},
    **{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    **{"bos_token_id": 1, "eos_token_id": 2},
}
SURENESS = 9
"""On a Llama's head: the entropy of a token is about one."""
CONTROL_TOKENS = 64
"""The first ones, which are next to never generated."""
OUTPUTS = ("o_proj", "down_proj")
PLANTED = 5000
"""The token that follows any other."""
QUIET = 0.02
"""How loud what hardly counts is."""
SMALL = {"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512}
"""A drafter of five layers so is a tenth of a `LLAMA` of 16, with the rows of its lm_head."""
FIRST = "model.layers.0."


def save_eagle(directory: Path, target: str | None) -> None:
    """Write an EAGLE-3 head of a target's shape."""
    config = read_config(locate(target).directory)
    hidden, ffn, guessed = config.hidden_size, config.ffn_size, min(GUESSED, config.vocab_size)
    heads, key_heads = (config.head_size * n for n in (config.num_heads, config.num_kv_heads))
    attention = {"q": (heads, 2 * hidden), "k": (key_heads, 2 * hidden)}
    attention |= {"v": (key_heads, 2 * hidden), "o": (hidden, heads)}
    mlp = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    shapes = {
        **{"fc": (hidden, 3 * hidden), "lm_head": (guessed, hidden), "norm": (hidden,)},
        **{f"midlayer.self_attn.{name}_proj": shape for name, shape in attention.items()},
        **{f"midlayer.mlp.{name}_proj": shape for name, shape in mlp.items()},
        **{f"midlayer.{name}": (hidden,) for name in norms},
    }
    hf: dict[str, Any] = {
        **{"vocab_size": config.vocab_size, "draft_vocab_size": guessed},
        **{"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": 1},
        **{"num_attention_heads": config.num_heads, "num_key_value_heads": config.num_kv_heads},
        **{"head_dim": config.head_size, "max_position_embeddings": config.context_max},
        **{"rms_norm_eps": config.norm_eps, "hidden_act": "silu"},
    }
    _save(directory, hf, {f"{name}.weight": _normed(shape) for name, shape in shapes.items()})


def save_dflash(directory: Path, target: str | None, layers: int, block: int) -> None:
    """Write a DFlash drafter of a target's shape."""
    config = read_config(locate(target).directory)
    hf = _dflash_config(config, layers, block)
    _save(directory, hf, {name: _normed(shape) for name, shape in _dflash_shapes(hf).items()})


def save_planted(directory: Path, layers: int, right: float, block: int) -> dict[str, Path]:
    """Write a Llama in which one token follows any other with a chance, and drafters of it: "right"
    guesses that token always, "wrong" another one."""
    folders = {name: directory / name for name in ("target", "right", "wrong")}
    hf = {**LLAMA, "vocab_size": read_info(locate(None)).vocab_size, "num_hidden_layers": layers}
    hf = dict(completed(hf))
    hidden, vocabulary = hf["hidden_size"], hf["vocab_size"]
    # What every token's embedding has in common is what the last layer comes to.
    common = torch.randint(0, 2, (hidden,)) * 2.0 - 1.0
    tensors = {
        name: _of_llama(name, shape, QUIET, first=False)
        for name, shape in inventory(hf).required.items()
    }
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    tensors[embedding] = (common + QUIET * tensors[embedding]).bfloat16()
    tensors[head] = (tensors[head] * QUIET).bfloat16()
    logit = log(right / (1.0 - right) * (vocabulary - 1))
    tensors[head][PLANTED] = (common * logit / hidden).bfloat16()
    for folder in folders.values():
        folder.mkdir()
    _save(folders["target"], hf, tensors)
    _copy_text(folders["target"])
    small = _dflash_config(read_config(folders["target"]), 5, block) | SMALL
    for name, sign in (("right", 1), ("wrong", -1)):
        drafter = {
            key: _normed(shape) * (QUIET if any(each in key for each in OUTPUTS) else 1)
            for key, shape in _dflash_shapes(small).items()
        }
        drafter["norm.weight"] *= sign * SURENESS
        _save(folders[name], small, drafter)
    return folders


def _dflash_config(config: ModelConfig, layers: int, block: int) -> dict[str, Any]:
    target_layers = sorted({round(place * (config.layer_count - 2) / 4) for place in range(5)})
    return {
        **{"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu"},
        **{"vocab_size": config.vocab_size, "hidden_size": config.hidden_size},
        **{"num_hidden_layers": layers, "intermediate_size": config.ffn_size},
        **{"num_attention_heads": config.num_heads, "num_key_value_heads": config.num_kv_heads},
        **{"head_dim": config.head_size, "max_position_embeddings": config.context_max},
        **{"rms_norm_eps": config.norm_eps, "block_size": block, "rope_theta": 1e6},
        "dflash_config": {
            "target_layer_ids": target_layers,
            "mask_token_id": config.vocab_size - 1,
        },
    }


def _dflash_shapes(hf: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, ffn, size = (hf[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
    heads, key_heads = (size * hf[f"num_{key}_heads"] for key in ("attention", "key_value"))
    own: dict[str, tuple[int, ...]] = {
        **{"self_attn.q_proj": (heads, hidden), "self_attn.o_proj": (hidden, heads)},
        **dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (key_heads, hidden)),
        **dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), (size,)),
        **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (ffn, hidden)),
        "mlp.down_proj": (hidden, ffn),
        **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (hidden,)),
    }
    read_count = len(hf["dflash_config"]["target_layer_ids"])
    shapes: dict[str, tuple[int, ...]] = {"fc": (hidden, read_count * hidden)}
    shapes |= dict.fromkeys(("hidden_norm", "norm"), (hidden,))
    for index in range(hf["num_hidden_layers"]):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in own.items()}
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def save_hybrid(directory: Path) -> None:
    """Write a model of Qwen3.5's layers with an MTP layer."""
    hf = dict(completed(HYBRID | {"vocab_size": read_info(locate(None)).vocab_size}))
    prefixes = {"model.layers.": "mtp.layers.", "model.norm": "mtp.norm"}
    stored = {name: _spread(shape) for name, shape in inventory(hf).required.items()}
    for name, shape in inventory({**hf, **ONE_LAYER}).required.items():
        for prefix, new in prefixes.items():
            if name.startswith(prefix):
                stored[new + name.removeprefix(prefix)] = _spread(shape)
    stored["mtp.fc.weight"] = _spread((HIDDEN, 2 * HIDDEN))
    for name in ("embedding", "hidden"):
        stored[f"mtp.pre_fc_norm_{name}.weight"] = torch.zeros(HIDDEN).bfloat16()
    _save(directory, hf, stored)
    _copy_text(directory)


def save_family(directory: Path, layers: int, loudness: float) -> tuple[Path, Path, Path]:
    """Write a Llama, a student that is its first layer, and a stranger of that shape.

    The other layers' outputs are as loud as that, relative to the first one's.
    """
    hf = {**LLAMA, "vocab_size": read_info(locate(None)).vocab_size, "num_hidden_layers": layers}
    tensors = {
        name: _of_llama(name, shape, loudness)
        for name, shape in inventory(dict(completed(hf))).required.items()
    }
    small = {**hf, "num_hidden_layers": 1}
    first = {
        name: each
        for name, each in tensors.items()
        if name.startswith(FIRST) or "layers." not in name
    }
    other = {
        name: _of_llama(name, tuple(each.shape), loudness) if name.startswith(FIRST) else each
        for name, each in first.items()
    }
    target, student, stranger = (directory / each for each in ("target", "student", "stranger"))
    for folder, config, weights in (
        (target, hf, tensors),
        (student, small, first),
        (stranger, small, other),
    ):
        folder.mkdir()
        _save(folder, dict(completed(config)), weights)
        _copy_text(folder)
    return target, student, stranger


def _spread(shape: tuple[int, ...]) -> Tensor:
    return (SPREAD * torch.randn(shape)).bfloat16()


def _normed(shape: tuple[int, ...]) -> Tensor:
    """Return random weights; those of norms are about one."""
    return _spread(shape) + (len(shape) == 1)


def _of_llama(name: str, shape: tuple[int, ...], loudness: float, *, first: bool = True) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape).bfloat16()
    if "embed" in name:
        return torch.randn(shape).bfloat16()
    value = torch.randn(shape) / sqrt(shape[1])
    if "lm_head" in name:
        value[:CONTROL_TOKENS] = 0.0
        value *= SURENESS
    elif not (first and name.startswith(FIRST)) and any(each in name for each in OUTPUTS):
        value *= loudness
    return value.bfloat16()


def _save(folder: Path, hf: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hf), encoding="utf-8")


def _copy_text(folder: Path) -> None:
    """Put the default model's tokenizer beside a model."""
    source = locate(None).directory
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        copy(source / name, folder)
