"""The architectures served, a row each: a new one of Llama's shape is a row, and nothing else.

A row says what a class of Transformers does whatever its config says, and which fields of the
config it obeys. Configs, refusals, the list of tensors, GGUF files and the loader read the row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.unsupported import Refused

Json = Mapping[str, Any]


class SlidingWindow(NamedTuple):
    """Sliding windows of a class: how wide, and whether some layer has one."""

    default: int | None
    """Tokens where the config names no `sliding_window`; None for full attention."""
    slides: Callable[[Json], bool]
    """Whether some layer has the window, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What a class of Transformers computes, where that is not Llama's plain graph."""

    hf_name: str
    """The class, as `architectures` of a config calls it."""
    model_type: str
    """The family, as `model_type` of a config calls it."""
    gguf_name: str | None = None
    """The family, as GGUF files call it; None where they are not read."""
    required: tuple[str, ...] = ()
    """Fields of the config that have defaults of the class's own, and so must be there."""
    query_key_norm: bool = False
    """Whether each head of queries and keys is normed before the rotation."""
    qkv_bias: str | None = None
    """Field of the config that gives queries, keys and values biases."""
    has_qkv_bias: bool = False
    """Whether they have them whatever is in the config."""
    output_bias: str | None = None
    """Field of the config that gives the attention's output a bias."""
    ffn_bias: str | None = None
    """Field of the config that gives the three matrices of the FFN biases."""
    window: SlidingWindow


def _unless_denied(hf: Json) -> bool:
    """Transformers ignores a Llama's window, other servers do not: the model's owner decides."""
    if hf.get("layer_types") is not None:
        return _in_a_layer(hf)
    return hf.get("use_sliding_window") is not False


def _in_last_layers(hf: Json) -> bool:
    if hf.get("layer_types") is not None:
        return _in_a_layer(hf)
    first = hf.get("max_window_layers", 28)
    return bool(hf.get("use_sliding_window")) and first < hf["num_hidden_layers"]


def _in_a_layer(hf: Json) -> bool:
    return "sliding_attention" in hf["layer_types"]


ARCHITECTURES = (
    Architecture(
        hf_name="LlamaForCausalLM",
        model_type="llama",
        gguf_name="llama",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias="mlp_bias",
        window=SlidingWindow(None, _unless_denied),
    ),
    Architecture(
        hf_name="MistralForCausalLM",
        model_type="mistral",
        required=("num_key_value_heads",),
        window=SlidingWindow(4096, lambda _: True),
    ),
    Architecture(
        hf_name="Qwen2ForCausalLM",
        model_type="qwen2",
        gguf_name="qwen2",
        required=("num_key_value_heads",),
        has_qkv_bias=True,
        window=SlidingWindow(4096, _in_last_layers),
    ),
    Architecture(
        hf_name="Qwen3ForCausalLM",
        model_type="qwen3",
        gguf_name="qwen3",
        required=("num_key_value_heads", "head_dim"),
        query_key_norm=True,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        window=SlidingWindow(4096, _in_last_layers),
    ),
)
BY_CLASS = {row.hf_name: row for row in ARCHITECTURES}


def architecture_of(hf: Json) -> Architecture:
    """Return the row of a config. Raises Refused for a class that has none."""
    named = hf.get("architectures") or ["no architecture"]
    name = named[0] if isinstance(named, list) else named
    if name not in BY_CLASS:
        raise Refused(f"{name} is not supported (only {', '.join(BY_CLASS)})")
    return BY_CLASS[name]
