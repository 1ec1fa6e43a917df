"""A Hugging Face `config.json` as a `ModelConfig`, or a refusal that names what is in the way."""

from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.architectures import (
    architecture_of,
    check_keys,
    completed,
    nested,
    wraps_any_text,
)
from draftwerk.model.checkpoint.config import LayerKind, ModelConfig, Rotary
from draftwerk.model.checkpoint.end_tokens import declared_ends, end_tokens
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.gguf_card import CARD
from draftwerk.model.checkpoint.quantised.scheme import scheme_of
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.rope_fields import LOCAL, check_rope, rope_of, rotary_dimensions
from draftwerk.model.checkpoint.supported import (
    GENERATION_FILE,
    activation_of,
    check_supported,
    experts_of,
    layers_of,
    recurrence_of,
    sees_all,
    sizes_of,
)
from draftwerk.model.checkpoint.unsupported import Refused

QUANTISATION_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
"""Beside weights that GPTQ, AWQ and ModelOpt have quantised."""


def read_config(directory: Path) -> ModelConfig:
    """Read `config.json`, and all tokens that end a text."""
    hf = read_supported(directory)
    generation = read_generation(directory)
    ends = end_tokens(directory, hf, generation)
    return msgspec.structs.replace(model_config(hf, generation), eos_token_ids=ends)


def read_supported(directory: Path) -> Json:
    """Return `config.json`. Raises Refused for what is not served, or contradicts itself."""
    hf = read_json(directory / "config.json")
    if hf is None:
        raise Refused(f"{directory}: no config.json")
    hf = nested(hf)
    if not (directory / CARD).is_file():  # whose keys were checked when it was made
        check_keys(hf)
    has_own_head, hf = wraps_any_text(hf), completed(hf)
    check_supported(hf)
    if has_own_head:
        _check_head(hf)
    check_rope(hf)
    for name in QUANTISATION_FILES:
        if (directory / name).is_file() and scheme_of(hf) is None:
            raise Refused(
                f"{directory / name}: the weights are quantised, and config.json has no "
                "quantization_config"
            )
    return hf


def _check_head(hf: Json) -> None:
    """Raise Refused for what a text's own class makes of logits, and its wrapper does not."""
    graph = architecture_of(hf).graph(hf)
    if graph.logit_scale != 1 or graph.logit_softcap:
        names = ("final_logit_softcapping", "logits_scaling", "logit_scale")
        said = next(name for name in names if hf.get(name))
        raise Refused(f"text_config {said} {hf[said]} is not supported: its wrapper drops it")


def read_generation(directory: Path) -> Json:
    """Return `generation_config.json`, empty where there is none."""
    return read_json(directory / GENERATION_FILE) or {}


def model_config(hf: Json, generation: Json) -> ModelConfig:
    """Translate a config that `read_supported` has returned."""
    row = architecture_of(hf)
    heads, kv_heads, head_size = sizes_of(hf)
    kinds = layers_of(hf)
    first = _rotary(hf)
    has_local = any(kind.rotary == 1 for kind in kinds)
    graph = row.graph(hf)
    return ModelConfig(
        architecture=row.hf_name,
        vocab_size=hf["vocab_size"],
        hidden_size=hf["hidden_size"],
        layer_count=hf["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        ffn_size=hf["intermediate_size"],
        context_max=hf["max_position_embeddings"],
        norm_eps=hf[row.norm_eps],
        rope_inverse_frequencies=first.inverse_frequencies,
        rope_magnitude=first.magnitude,
        local_rotary=_rotary(hf, LOCAL) if has_local else None,
        tied_embeddings=bool(hf.get("tie_word_embeddings", False)),
        query_key_norm=row.query_key_norm(hf),
        eos_token_ids=declared_ends(hf, generation),
        graph=msgspec.structs.replace(graph, activation=activation_of(hf), sees_all=sees_all(hf)),
        experts=experts_of(hf),
        kernel_size=row.kernel_size(hf)
        if any(kind.mixer == "convolution" for kind in kinds)
        else 0,
        recurrence=recurrence_of(hf),
        layers=() if set(kinds) == {LayerKind()} else kinds,
    )


def _rotary(hf: Json, layers: str = "") -> Rotary:
    theta, scaling = rope_of(hf, layers)
    size = rotary_dimensions(hf, scaling, layers)
    return Rotary(*rotary(size, theta, scaling, hf["max_position_embeddings"]))
