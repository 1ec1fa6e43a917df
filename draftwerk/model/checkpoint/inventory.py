"""The tensors that a config calls for, and whether a checkpoint holds them, without torch."""

from collections.abc import Mapping
from typing import NamedTuple

from draftwerk.model.checkpoint.architectures import Json, architecture_of
from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor
from draftwerk.model.checkpoint.supported import sizes_of
from draftwerk.model.checkpoint.unsupported import Refused

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TensorShape = tuple[int, ...]


class Inventory(NamedTuple):
    """Tensors by name, with their shapes."""

    required: dict[str, TensorShape]
    optional: dict[str, TensorShape]


def inventory(hf: Json) -> Inventory:
    """Return what a config calls for; the config has passed `check_supported`."""
    sizes, architecture = sizes_of(hf), architecture_of(hf)
    hidden = hf["hidden_size"]
    required: dict[str, TensorShape] = {
        EMBEDDING: (hf["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    optional: dict[str, TensorShape] = {}
    (optional if hf.get("tie_word_embeddings") else required)[HEAD] = (hf["vocab_size"], hidden)
    for index in range(hf["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            required[f"{layer}{name}.weight"] = (hidden,)
        if architecture.query_key_norm:
            for name in ("q_norm", "k_norm"):
                required[f"{layer}self_attn.{name}.weight"] = (sizes.head_size,)
        _add_attention(hf, layer + "self_attn.", required, optional)
        _add_ffn(hf, layer + "mlp.", required)
    return Inventory(required, optional)


def _add_attention(
    hf: Json, prefix: str, required: dict[str, TensorShape], optional: dict[str, TensorShape]
) -> None:
    sizes, hidden = sizes_of(hf), hf["hidden_size"]
    query, key = sizes.num_heads * sizes.head_size, sizes.num_kv_heads * sizes.head_size
    rows = {"q_proj": query, "k_proj": key, "v_proj": key}
    required |= {f"{prefix}{name}.weight": (count, hidden) for name, count in rows.items()}
    required[f"{prefix}o_proj.weight"] = (hidden, query)
    architecture = architecture_of(hf)
    if architecture.has_qkv_bias or _says(hf, architecture.qkv_bias):
        required |= {f"{prefix}{name}.bias": (count,) for name, count in rows.items()}
    if _says(hf, architecture.output_bias):
        # Transformers fills in zeros where a checkpoint has biases for the other three alone.
        optional[f"{prefix}o_proj.bias"] = (hidden,)


def _add_ffn(hf: Json, prefix: str, required: dict[str, TensorShape]) -> None:
    hidden, ffn = hf["hidden_size"], hf["intermediate_size"]
    rows = {"gate_proj": (ffn, hidden), "up_proj": (ffn, hidden), "down_proj": (hidden, ffn)}
    required |= {f"{prefix}{name}.weight": shape for name, shape in rows.items()}
    if _says(hf, architecture_of(hf).ffn_bias):
        required |= {f"{prefix}{name}.bias": shape[:1] for name, shape in rows.items()}


def _says(hf: Json, field: str | None) -> bool:
    return field is not None and bool(hf.get(field))


def check_tensors(hf: Json, stored: Mapping[str, StoredTensor]) -> None:
    """Refuse a checkpoint whose weights do not fit its config, naming the first of them."""
    required, optional = inventory(hf)
    for name, shape in (required | optional).items():
        held = stored.get(name)
        if held is None:
            if name in required:
                raise Refused(f"the weights lack {name}{_because(hf, name)}")
        elif held.dtype not in BYTES:
            raise Refused(f"{name} is {held.dtype}: quantised weights are not supported")
        elif held.shape != shape:
            raise Refused(f"{name} has shape {held.shape}, the config says {shape}")
    known = required.keys() | optional.keys()
    left = [name for name in stored if name not in known and not _is_computed(name)]
    if left:
        raise Refused(
            f"the weights hold {len(left)} unknown tensors: {', '.join(left[:3])}"
            + _because(hf, left[0])
        )


def _is_computed(name: str) -> bool:
    """Whether a tensor is one that old checkpoints stored, and every program computes anew."""
    return name.endswith("rotary_emb.inv_freq")


def _because(hf: Json, name: str) -> str:
    """Return which field of the config a tensor's presence or absence contradicts, if it is one."""
    if name == HEAD:
        return " (tie_word_embeddings is false)"
    if not name.endswith(".bias"):
        return ""
    field = "mlp_bias" if ".mlp." in name else "attention_bias"
    return f" ({field} is {str(bool(hf.get(field))).lower()})"
