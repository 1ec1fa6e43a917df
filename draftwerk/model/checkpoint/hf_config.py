"""A Hugging Face `config.json` as a `ModelConfig`, or a refusal that names what is in the way."""

from pathlib import Path

from draftwerk.model.checkpoint.architectures import Json, architecture_of
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.info import end_tokens, read_generation, read_supported
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.rope_fields import rope_of
from draftwerk.model.checkpoint.supported import check_supported, sizes_of


def read_config(directory: Path) -> ModelConfig:
    """Read `config.json`, and the end tokens of `generation_config.json` where there is one."""
    hf = read_supported(directory)
    return model_config(hf, read_generation(directory))


def model_config(hf: Json, generation: Json) -> ModelConfig:
    """Translate, refusing by name whatever the forward would not obey."""
    check_supported(hf)
    architecture = architecture_of(hf)
    heads, kv_heads, head_size = sizes_of(hf)
    context_max = hf["max_position_embeddings"]
    theta, scaling = rope_of(hf)
    frequencies, magnitude = rotary(head_size, theta, scaling, context_max)
    return ModelConfig(
        architecture=architecture.hf_name,
        vocab_size=hf["vocab_size"],
        hidden_size=hf["hidden_size"],
        layer_count=hf["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        ffn_size=hf["intermediate_size"],
        context_max=context_max,
        norm_eps=hf["rms_norm_eps"],
        rope_inverse_frequencies=frequencies,
        rope_magnitude=magnitude,
        tied_embeddings=bool(hf.get("tie_word_embeddings", False)),
        query_key_norm=architecture.query_key_norm,
        eos_token_ids=end_tokens(hf, generation),
    )
