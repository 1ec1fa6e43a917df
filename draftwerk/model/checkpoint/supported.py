"""Which `config.json` files are served, decided without torch."""

from typing import NamedTuple

from draftwerk.model.checkpoint.architectures import Architecture, Json, architecture_of
from draftwerk.model.checkpoint.unsupported import Refused

COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
REQUIRED = (*COUNTS, "rms_norm_eps")
DTYPES = ("float32", "float16", "bfloat16", "float64")

GENERATION_FILE = "generation_config.json"


class Sizes(NamedTuple):
    """The attention heads of a config, defaults filled in."""

    num_heads: int
    num_kv_heads: int
    head_size: int


def sizes_of(hf: Json) -> Sizes:
    """Return the heads of a config that has passed `check_supported`."""
    heads = hf["num_attention_heads"]
    return Sizes(
        heads,
        hf.get("num_key_value_heads") or heads,
        hf.get("head_dim") or hf["hidden_size"] // heads,
    )


def check_supported(hf: Json) -> None:
    """Raise Refused, naming what the forward would not obey, or two facts of which one is wrong."""
    architecture = architecture_of(hf)
    kind = hf.get("model_type", architecture.model_type)
    if kind != architecture.model_type:
        raise Refused(f"model_type {kind!r} contradicts architectures {architecture.hf_name!r}")
    missing = [key for key in (*REQUIRED, *architecture.required) if hf.get(key) is None]
    if missing:
        raise Refused(f"config.json lacks {', '.join(missing)}")
    _check_sizes(hf)
    _refuse_quantisation(hf)
    if hf.get("hidden_act", "silu") != "silu":
        raise Refused(f"hidden_act {hf['hidden_act']!r} is not supported (only 'silu')")
    _refuse_sliding_window(architecture, hf)


def _check_sizes(hf: Json) -> None:
    """Refuse counts that are none, and heads that do not divide what they share."""
    for key in (*COUNTS, "num_key_value_heads", "head_dim"):
        value = hf.get(key)
        if value is not None and (not isinstance(value, int) or value < 1 or value is True):
            raise Refused(f"{key} {value!r} is not a count")
    if not isinstance(hf["rms_norm_eps"], int | float) or not 0 <= hf["rms_norm_eps"] < 1:
        raise Refused(f"rms_norm_eps {hf['rms_norm_eps']!r} is not a small number")
    heads, kv_heads, head_size = sizes_of(hf)
    if heads % kv_heads:
        raise Refused(
            f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}"
        )
    if hf.get("head_dim") is None and hf["hidden_size"] % heads:
        raise Refused(
            f"hidden_size {hf['hidden_size']} is no multiple of num_attention_heads {heads}, "
            "and there is no head_dim"
        )
    if head_size % 2:
        raise Refused(f"head_dim {head_size} is odd: rotary positions need pairs")


def _refuse_quantisation(hf: Json) -> None:
    for field in ("quantization_config", "compression_config"):
        if hf.get(field):
            method = "unnamed"
            if isinstance(hf[field], dict):
                method = hf[field].get("quant_method", method)
            raise Refused(f"{field} {method!r} is not supported; use a GGUF file instead")
    named = {key: hf[key] for key in ("dtype", "torch_dtype") if hf.get(key) is not None}
    for key, value in named.items():
        if value not in DTYPES:
            raise Refused(f"{key} {value!r} is not supported (only {', '.join(DTYPES)})")
    if len(set(named.values())) > 1:
        raise Refused(f"dtype {hf['dtype']!r} contradicts torch_dtype {hf['torch_dtype']!r}")


def _refuse_sliding_window(architecture: Architecture, hf: Json) -> None:
    """Refuse a window only where it would hide a token that full attention sees."""
    default, slides = architecture.window
    _check_layer_types(hf)
    window = hf.get("sliding_window", default)
    if window is None or not slides(hf):
        return
    if not isinstance(window, int) or window < 1:
        raise Refused(f"sliding_window {window!r} is not a count")
    if window < hf["max_position_embeddings"]:
        raise Refused(f"sliding_window {window} is not supported (only full attention)")


def _check_layer_types(hf: Json) -> None:
    types = hf.get("layer_types")
    if types is None:
        return
    if not isinstance(types, list) or len(types) != hf["num_hidden_layers"]:
        raise Refused(f"layer_types contradicts num_hidden_layers {hf['num_hidden_layers']}")
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            raise Refused(f"layer_types {kind!r} is not supported (only full attention)")
    if "sliding_attention" in types and "sliding_window" in hf and hf["sliding_window"] is None:
        raise Refused("layer_types 'sliding_attention' contradicts sliding_window null")
