"""A DFlash drafter in a GGUF as llama.cpp writes it, in the words of its authors' files.

dflash.target_layers       each one behind the layer whose output is read
dflash.block_size, .attention.causal, .attention.sliding_window(_pattern)
tokenizer.ggml.mask_token_id
fc, enc.output_norm, output_norm, blk.N.attn_q ...      Qwen3's names; rows are not reordered
blk.N.attn_conv_base ..., selector_hidden ...           of a DFlash 2
"""

import re
from pathlib import Path
from typing import Any

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.dflash2_config import (
    CONVOLUTIONS,
    KERNEL,
    KEYS,
    PREDECESSORS,
    PROJECTION,
    SELECTOR,
    SUCCESSORS,
)
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.families.windows import FULL, SLIDING
from draftwerk.model.checkpoint.files.content import Hashed
from draftwerk.model.checkpoint.files.gguf_header import GgufTensor
from draftwerk.model.checkpoint.files.gguf_shards import GgufModel, read_gguf
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_card import CardTensor, GgufCard
from draftwerk.model.checkpoint.gguf_config import hf_config
from draftwerk.model.checkpoint.gguf_names import hf_name
from draftwerk.model.checkpoint.gguf_source import GgufSource, flat_shape
from draftwerk.model.checkpoint.unsupported import Refused

ARCHITECTURE = "dflash"
QWEN3 = BY_CLASS["Qwen3ForCausalLM"]
"""The class whose names the layers have."""
SCALES = ("embedding_scale", "logit_scale", "final_logit_softcapping")
SECTION = {
    **{key: key for key in KEYS[:4]},
    **dict(zip(KEYS[4:], SCALES, strict=True)),
    "causal": "attention.causal",
}
"""Keys of the drafter's section, and of the GGUF."""
TARGET_LAYERS, BLOCK_SIZE, MASK = "target_layers", "block_size", "tokenizer.ggml.mask_token_id"
WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
LAYERS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings"),
    *("rms_norm_eps", "attention_bias", "rope_theta", "rope_scaling"),
)
"""Fields of its layers."""
BESIDE = {
    **{"fc.weight": "fc.weight", "enc.output_norm.weight": "hidden_norm.weight"},
    **{"selector_predecessor.weight": PREDECESSORS, "selector_successor.weight": SUCCESSORS},
    "selector_hidden.weight": SELECTOR,
}
PARTS: dict[str, str] = dict(zip(("attn", "ffn"), CONVOLUTIONS, strict=True))
CONVOLUTION = re.compile(r"blk\.(\d+)\.(attn|ffn)_conv_(base|proj\.weight)")


def is_dflash_gguf(path: Path) -> bool:
    """Whether a file is one. Raises Refused for a GGUF that cannot be read."""
    if path.suffix != ".gguf" or not path.is_file():
        return False
    return read_gguf(path).fields.get("general.architecture") == ARCHITECTURE


def read_dflash_gguf(path: Path) -> Json:
    """Return a file's metadata as a drafter's config.json. Raises Refused, naming the key."""
    model = read_gguf(path)
    fields = dict(model.fields)

    def take(key: str) -> Any:
        return fields.pop(f"{ARCHITECTURE}.{key}", None)

    section = {name: value for name, key in SECTION.items() if (value := take(key)) is not None}
    target_layers, size, window, pattern = map(take, (TARGET_LAYERS, BLOCK_SIZE, WINDOW, PATTERN))
    mask = fields.pop(MASK, None)
    layers = hf_config(GgufSource(model._replace(fields=fields), ARCHITECTURE, QWEN3, set()))
    if not isinstance(target_layers, list) or not all(type(each) is int for each in target_layers):
        raise Refused(f"{ARCHITECTURE}.{TARGET_LAYERS} is {target_layers!r}, and no list of layers")
    found = {name: layers[name] for name in LAYERS if layers.get(name) is not None}
    if window:
        found |= _windows(window, pattern, found["num_hidden_layers"])
    has_norms = "blk.0.attn_q_norm.weight" in model.tensors
    return {
        **found,
        **{"model_type": "qwen3" if has_norms else "llama", "block_size": size},
        "dflash_config": {
            **section,
            **{"target_layer_ids": [each - 1 for each in target_layers], "mask_token_id": mask},
        },
    }


def _windows(window: int, pattern: Any, count: int) -> Json:
    if not isinstance(pattern, list) or len(pattern) != count:
        raise Refused(f"{ARCHITECTURE}.{PATTERN} is {pattern!r}, and not of {count} layers")
    return {
        **{"sliding_window": window, "use_sliding_window": True, "max_window_layers": 0},
        "layer_types": [SLIDING if each else FULL for each in pattern],
    }


def gguf_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return a file's tensors by the names of safetensors. Raises Refused for an unknown one."""
    model = read_gguf(path)
    return {
        _name(tensor.name): StoredTensor(path, "F32", tensor.shape, tensor.name)
        for tensor in model.tensors.values()
    }


def gguf_card(path: Path, stored: dict[str, StoredTensor]) -> GgufCard:
    """Return where tensors are, which `gguf_tensors` has found, by their names now."""
    model = read_gguf(path)
    return GgufCard(
        path.name,
        "",
        tuple(map(str, model.paths)),
        tuple(map(Hashed.of, model.paths)),
        {name: _place(model, model.tensors[each.name]) for name, each in stored.items()},
    )


def _place(model: GgufModel, tensor: GgufTensor) -> CardTensor:
    at, shape = model.paths.index(tensor.path), flat_shape(tensor.shape)
    return CardTensor(at, tensor.kind, shape, tensor.begin, tensor.size)


def _name(name: str) -> str:
    if found := BESIDE.get(name):
        return found
    if match := CONVOLUTION.fullmatch(name):
        index, part, kind = match.groups()
        return f"layers.{index}.{PARTS[part]}.{KERNEL if kind == 'base' else PROJECTION}"
    return hf_name(QWEN3, name).removeprefix("model.")
