"""Which `config.json` files are served, decided without torch."""

from collections.abc import Mapping
from typing import Any

from draftwerk.model.checkpoint.unsupported import Refused

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "rms_norm_eps",
)

Json = Mapping[str, Any]


def check_supported(hf: Json) -> None:
    """Raise Refused, naming what the forward would not obey."""
    architecture = (hf.get("architectures") or ["no architecture"])[0]
    if architecture not in ARCHITECTURES:
        served = ", ".join(ARCHITECTURES)
        raise Refused(f"{architecture} is not supported (only {served})")
    missing = [key for key in REQUIRED if hf.get(key) is None]
    if architecture != "LlamaForCausalLM" and hf.get("num_key_value_heads") is None:
        missing.append("num_key_value_heads")  # each has its own default; only Llama's is plain
    if architecture == "Qwen3ForCausalLM" and hf.get("head_dim") is None:
        missing.append("head_dim")
    if missing:
        raise Refused(f"config.json lacks {', '.join(missing)}")
    if hf.get("quantization_config"):
        method = hf["quantization_config"].get("quant_method", "unnamed")
        raise Refused(f"quantization_config {method!r} is not supported; use a GGUF file instead")
    if hf.get("hidden_act", "silu") != "silu":
        raise Refused(f"hidden_act {hf['hidden_act']!r} is not supported (only 'silu')")
    _refuse_sliding_window(architecture, hf)


def _refuse_sliding_window(architecture: str, hf: Json) -> None:
    """Refuse a window only where it would hide a token that full attention sees."""
    window = hf.get("sliding_window", 4096)
    if architecture == "LlamaForCausalLM":
        window = None
    if architecture.startswith("Qwen") and not _slides(hf):
        window = None
    if window is not None and window < hf["max_position_embeddings"]:
        raise Refused(f"sliding_window {window} is not supported (only full attention)")


def _slides(hf: Json) -> bool:
    """Whether some layer of a Qwen has a window."""
    if hf.get("layer_types") is not None:
        return "sliding_attention" in hf["layer_types"]
    first = hf.get("max_window_layers", 28)
    return bool(hf.get("use_sliding_window")) and first < hf["num_hidden_layers"]
