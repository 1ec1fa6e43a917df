"""A Hugging Face `config.json` as a `ModelConfig`, or a refusal that names what is in the way."""

from pathlib import Path

from model.card import Json, end_tokens, read_generation
from model.config import ModelConfig
from model.json_file import read_json
from model.refusal import Refused
from model.rope import rotary

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
ROPE_THETA = 10_000.0
"""What every one of these architectures means when it names none."""


def read_config(directory: Path) -> ModelConfig:
    """Read `config.json`, and the end tokens of `generation_config.json` where there is one."""
    hf = read_json(directory / "config.json")
    if hf is None:
        raise Refused(f"{directory}: no config.json")
    return model_config(hf, read_generation(directory))


def model_config(hf: Json, generation: Json) -> ModelConfig:
    """Translate, refusing by name whatever the forward would not obey."""
    _refuse(hf)
    heads = hf["num_attention_heads"]
    head_size = hf.get("head_dim") or hf["hidden_size"] // heads
    context_max = hf["max_position_embeddings"]
    theta, scaling = _rope(hf)
    frequencies, magnitude = rotary(head_size, theta, scaling, context_max)
    return ModelConfig(
        architecture=hf["architectures"][0],
        vocab_size=hf["vocab_size"],
        hidden_size=hf["hidden_size"],
        layer_count=hf["num_hidden_layers"],
        head_count=heads,
        kv_head_count=hf.get("num_key_value_heads") or heads,
        head_size=head_size,
        ffn_size=hf["intermediate_size"],
        context_max=context_max,
        norm_eps=hf["rms_norm_eps"],
        rope_inverse_frequencies=frequencies,
        rope_magnitude=magnitude,
        tied_embeddings=bool(hf.get("tie_word_embeddings", False)),
        query_key_norm=hf["architectures"][0] == "Qwen3ForCausalLM",
        eos_token_ids=end_tokens(hf, generation),
    )


def _refuse(hf: Json) -> None:
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


def _rope(hf: Json) -> tuple[float, Json]:
    """Return theta and the scaling, from the new field or the two old ones."""
    scaling = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or hf.get("rope_theta") or ROPE_THETA
    if (scaling.get("partial_rotary_factor") or hf.get("partial_rotary_factor") or 1.0) != 1.0:
        raise Refused("partial_rotary_factor is not supported")
    return float(theta), scaling
