"""EAGLE-3 heads (arXiv 2503.01840): a folder with a decoder layer that reads three of the target's.

    fc              [H, 3 T]     of the target's hidden states before three of its layers
    layer           Llama's, but its attention reads [norm(embedding), norm(hidden)]
    norm, lm_head   of a vocabulary of its own; its token i is the target's i + d2t[i]

Read as EAGLE, SpecForge and speculators write them, from safetensors.
"""

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.eagle_config import read_eagle_config
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.unsupported import Refused

PREFIXES = re.compile(r"(?:model\.)?(?:midlayer\.|layers\.0\.)?")
"""The prefixes of tensors: the layer has had several names."""
NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm", "norm")
MATRICES = {
    "fc": ("fc",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
    "lm_head": ("lm_head",),
}
"""Weights that are kept stacked, by what they are called here."""
EMBEDDING, OFFSETS = "embed_tokens.weight", "d2t"
UNREAD = ("t2d", "rotary_emb.inv_freq", "self_attn.rotary_emb.inv_freq")
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


class EagleHead(NamedTuple):
    """A head's weights."""

    config: ModelConfig
    """The configuration of a Llama of this one layer, with as many tokens as the head guesses."""
    target_layers: tuple[int, ...]
    """Before which of the target's the hidden states are read, ascending."""
    norms_residual: bool
    """Whether what the layer adds to is normed."""
    norms: dict[str, Tensor]
    """By `NORMS`."""
    matrices: dict[str, Tensor]
    """By `MATRICES`."""
    vocabulary: Tensor
    """The target's tokens, by row of the lm_head."""
    embedding: Tensor | None
    """None where it is the target's."""


def read_eagle(directory: Path, target: ModelConfig) -> EagleHead:
    """Return the head in a folder. Raises Refused, naming what does not fit the target."""
    try:
        return _read(directory, target)
    except Refused as error:
        raise Refused(f"draft head {directory}: {error}") from None


def _read(directory: Path, target: ModelConfig) -> EagleHead:
    hf, layer = read_eagle_config(directory)
    config = model_config(layer, {})
    stored = {
        PREFIXES.sub("", name, count=1): tensor._replace(name=name)
        for name, tensor in stored_tensors(directory).items()
    }
    _check(stored, _shapes(config, target), target)
    tensors = Tensors(stored, None, torch.device("cpu"))
    stacked = {
        key: torch.cat([tensors.take(f"{name}.weight") for name in names])
        for key, names in MATRICES.items()
    }
    return EagleHead(
        config,
        _target_layers(hf, target.layer_count),
        bool(hf.get("norm_before_residual")),
        {name: tensors.exact(f"{name}.weight") for name in NORMS},
        stacked,
        _vocabulary(tensors, config.vocab_size, target.vocab_size),
        tensors.find(EMBEDDING),
    )


def _shapes(config: ModelConfig, target: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return what the tensors' shapes must be."""
    hidden, ffn = config.hidden_size, config.ffn_size
    heads, key_heads = (config.head_size * n for n in (config.num_heads, config.num_kv_heads))
    query, key, value = MATRICES["qkv"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (hidden, 3 * target.hidden_size),
        **{query: (heads, 2 * hidden), key: (key_heads, 2 * hidden)},
        **{value: (key_heads, 2 * hidden), "self_attn.o_proj": (hidden, heads)},
        **dict.fromkeys(MATRICES["gate_up"], (ffn, hidden)),
        **{"mlp.down_proj": (hidden, ffn), "lm_head": (config.vocab_size, hidden)},
        **dict.fromkeys(NORMS, (hidden,)),
    }
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def _check(
    stored: dict[str, StoredTensor], shapes: dict[str, tuple[int, ...]], target: ModelConfig
) -> None:
    """Refuse a head that lacks a tensor, or has one of another shape or one that is not read."""
    hidden, guessed = shapes["norm.weight"], shapes["lm_head.weight"][:1]
    known = {**shapes, EMBEDDING: (target.vocab_size, *hidden), OFFSETS: guessed}
    needed = shapes.keys() if hidden == (target.hidden_size,) else {*shapes, EMBEDDING}
    if lacking := sorted(needed - stored.keys()):
        raise Refused(f"it lacks {lacking[0]}")
    for name, tensor in stored.items():
        if name in UNREAD:
            continue
        if name not in known:
            raise Refused(f"{tensor.name} is not read by the layer of a Llama")
        if tensor.shape != known[name]:
            raise Refused(f"{tensor.name} is {list(tensor.shape)}, not {list(known[name])}")


def _target_layers(hf: Json, count: int) -> tuple[int, ...]:
    """Return the layers before which states are read; a nested list has those behind which."""
    nested = (hf.get("eagle_config") or {}).get(LAYER_IDS)
    own = hf.get(LAYER_IDS) or [2, count // 2, count - 3]
    found = sorted({each + 1 for each in nested} if nested else set(own))
    if len(found) != 3 or not 0 <= found[0] <= found[2] < count:
        raise Refused(f"{LAYER_IDS}: {found} are not three of the model's {count} layers")
    return tuple(found)


def _vocabulary(tensors: Tensors, size: int, target: int) -> Tensor:
    found = torch.arange(size)
    if (offsets := tensors.stored.get(OFFSETS)) is not None:
        found += tensors.open[offsets.path].get_tensor(offsets.name).long()
    if not 0 <= int(found.min()) <= int(found.max()) < target:
        raise Refused(f"{OFFSETS} names tokens that the model does not have")
    return found
