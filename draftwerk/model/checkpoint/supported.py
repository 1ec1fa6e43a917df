"""Which `config.json` files are served, decided without torch."""

from typing import NamedTuple

import msgspec

from draftwerk.model.checkpoint.architectures import architecture_of
from draftwerk.model.checkpoint.config import Activation, Experts, LayerKind
from draftwerk.model.checkpoint.families.architecture import COUNT_MAX, LISTED_MAX, Json, counted
from draftwerk.model.checkpoint.quantised.scheme import scheme_of
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.unsupported import Refused

COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu2": "relu_squared",
}
"""By Transformers' names of them."""
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
    required = (*COUNTS, architecture.norm_eps)
    missing = [key for key in required if hf.get(key) is None]
    if missing:
        raise Refused(f"config.json lacks {', '.join(missing)}")
    _check_sizes(hf)
    scheme_of(hf)
    _check_dtype(hf)
    activation_of(hf)
    architecture.layers(hf)
    architecture.kernel_size(hf)
    recurrence_of(hf)
    architecture.graph(hf)
    sees_all(hf)
    experts_of(hf)


def experts_of(hf: Json) -> Experts | None:
    """Return the experts of a config. Raises Refused."""
    row = architecture_of(hf)
    return None if row.experts is None else row.experts(hf)


def recurrence_of(hf: Json) -> Recurrence | None:
    """Return the recurrence of a config, if some layer has it. Raises Refused."""
    row = architecture_of(hf)
    if row.recurrence is None or all(kind.mixer != "recurrence" for kind in row.layers(hf)):
        return None
    if activation_of(hf) != "silu":
        raise Refused(f"{row.activation} {hf[row.activation]!r} is not supported in a recurrence")
    return row.recurrence(hf)


def sees_all(hf: Json) -> bool:
    """Return whether each token sees all of its text. Raises Refused.

    Such a model makes vectors of texts, and generates none.
    """
    is_causal, row = hf.get("is_causal"), architecture_of(hf)
    if not isinstance(is_causal, bool | None):
        raise Refused(f"is_causal {is_causal!r} is neither true nor false")
    if is_causal is not False:
        return row.sees_all(hf)
    for kind in row.layers(hf):
        if kind.mixer != "attention":
            raise Refused(f"is_causal false is not supported with a {kind.mixer}")
    return True


def layers_of(hf: Json) -> tuple[LayerKind, ...]:
    """Return the layers of a config that has passed `check_supported`.

    Without an order of time Transformers takes the position at a window's distance as well.
    """
    kinds = architecture_of(hf).layers(hf)
    more = int(hf.get("is_causal") is False)
    return tuple(
        msgspec.structs.replace(kind, window=kind.window + more) if kind.window else kind
        for kind in kinds
    )


def _check_sizes(hf: Json) -> None:
    """Refuse counts that are none, and heads that do not divide what they share."""
    for key in (*COUNTS, "num_key_value_heads", "head_dim"):
        if hf.get(key) is not None:
            counted(key, hf[key], most=LISTED_MAX if key == "num_hidden_layers" else COUNT_MAX)
    eps = architecture_of(hf).norm_eps
    if not isinstance(hf[eps], int | float) or not 0 <= hf[eps] < 1:
        raise Refused(f"{eps} {hf[eps]!r} is not a small number")
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


def _check_dtype(hf: Json) -> None:
    named = {key: hf[key] for key in ("dtype", "torch_dtype") if hf.get(key) is not None}
    for key, value in named.items():
        if value not in DTYPES:
            raise Refused(f"{key} {value!r} is not supported (only {', '.join(DTYPES)})")
    if len(set(named.values())) > 1:
        raise Refused(f"dtype {hf['dtype']!r} contradicts torch_dtype {hf['torch_dtype']!r}")


def activation_of(hf: Json) -> Activation:
    """Return the activation of the FFN. Raises Refused for one that is not served."""
    field = architecture_of(hf).activation
    name = hf.get(field, "silu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        known = ", ".join(repr(each) for each in ACTIVATIONS)
        raise Refused(f"{field} {name!r} is not supported (only {known})")
    return ACTIVATIONS[name]
