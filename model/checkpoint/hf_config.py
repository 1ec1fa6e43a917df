"""A Hugging Face `config.json` as a `ModelConfig`, or a refusal that names what is in the way."""

from pathlib import Path

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.info import end_tokens, read_generation
from draftwerk.model.checkpoint.json_file import read_json
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.supported import Json, check_supported
from draftwerk.model.checkpoint.unsupported import Refused

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
    check_supported(hf)
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
        num_heads=heads,
        num_kv_heads=hf.get("num_key_value_heads") or heads,
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


def _rope(hf: Json) -> tuple[float, Json]:
    """Return theta and the scaling, from the new field or the two old ones."""
    scaling = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or hf.get("rope_theta") or ROPE_THETA
    if (scaling.get("partial_rotary_factor") or hf.get("partial_rotary_factor") or 1.0) != 1.0:
        raise Refused("partial_rotary_factor is not supported")
    return float(theta), scaling
