"""Llama, and the families that differ from it in biases, norms of heads or rotation."""

from collections.abc import Callable, Sequence
from typing import Any

from draftwerk.model.checkpoint.config import Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    all_alike,
    number,
)
from draftwerk.model.checkpoint.families.windows import (
    SLIDING,
    WINDOW_KEYS,
    alike_in_window,
    all_slide,
    first_of,
    gguf_windows,
    last_slide,
    layer_types,
    sliding,
    window_of,
)
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.unsupported import Refused


def _without_window(hf: Json) -> Sequence[LayerKind]:
    """Transformers ignores a Llama's window, other servers do not: the model's owner decides."""
    kinds = layer_types(hf, all_slide)
    if window_of(hf) and SLIDING in kinds and hf.get("use_sliding_window") is not False:
        raise Refused(f"sliding_window {hf['sliding_window']} is ambiguous for this class")
    return all_alike(hf)


def _some_unrotated(hf: Json) -> Sequence[LayerKind]:
    """Return SmolLM3's layers: those with 1 in `no_rope_layers` are the ones that rotate."""
    count = hf["num_hidden_layers"]
    rotates = hf.get("no_rope_layers")
    if rotates is None:
        period = int(number(hf, "no_rope_layer_interval"))
        rotates = [int((i + 1) % period != 0) for i in range(count)]
    if (
        not isinstance(rotates, list)
        or len(rotates) < count
        or any(each not in (0, 1) for each in rotates)
    ):
        raise Refused(f"no_rope_layers {rotates!r} is no list of 0 and 1 for each layer")
    window = window_of(hf) if hf.get("use_sliding_window") else 0
    kinds = layer_types(hf, lambda _: [SLIDING if not each else "" for each in rotates[:count]])
    return [
        LayerKind(window if kind == SLIDING else 0, 0 if rotate else -1)
        for kind, rotate in zip(kinds, rotates, strict=False)
    ]


def _scaled_by_position(hf: Json) -> Graph:
    """Return Ministral 3's graph: its queries grow with their position."""
    rope = hf.get("rope_scaling") or hf.get("rope_parameters")
    rope = rope if isinstance(rope, dict) else {}
    return Graph(temperature_beta=number(rope, HEAT), temperature_length=number(rope, HEAT_LENGTH))


def _heat_of_gguf(get: Callable[..., Any]) -> Json:
    length = get(".attention.temperature_length")
    original = get(".rope.scaling.original_context_length") or length
    return {HEAT: get(HEAT_KEY), HEAT_LENGTH: original}


def _short_window(get: Callable[..., Any]) -> Json:
    original = get(".rope.scaling.original_context_length")
    return {**gguf_windows(get), "original_max_position_embeddings": original}


HEAT_KEY = ".attention.temperature_scale"
HEAT, HEAT_LENGTH = "llama_4_scaling_beta", "original_max_position_embeddings"
ROWS = (
    Architecture(
        hf_name="LlamaForCausalLM",
        model_type="llama",
        gguf=GgufNames(
            "llama", pairs_are_neighbours=True, is_for=lambda get: not get(".expert_count")
        ),
        **BIASED,
        ffn_bias="mlp_bias",
        keys=WINDOW_KEYS,
        layers=_without_window,
    ),
    Architecture(
        hf_name="MistralForCausalLM",
        model_type="mistral",
        keys=WINDOW_KEYS,
        layers=alike_in_window,
    ),
    Architecture(
        hf_name="Qwen2ForCausalLM",
        model_type="qwen2",
        gguf=GgufNames("qwen2"),
        has_qkv_bias=True,
        layers=sliding(last_slide),
        rope_types={"mrope": "default"},
        wrappers=("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
    ),
    Architecture(
        hf_name="Qwen3ForCausalLM",
        model_type="qwen3",
        gguf=GgufNames("qwen3"),
        query_key_norm=lambda _: True,
        **BIASED,
        layers=sliding(last_slide),
        wrappers=("Qwen3VLForConditionalGeneration",),
    ),
    Architecture(
        hf_name="SmolLM3ForCausalLM",
        model_type="smollm3",
        summary="some without rotation",
        gguf=GgufNames("smollm3", pairs_are_neighbours=True),
        **BIASED,
        ffn_bias="mlp_bias",
        layers=_some_unrotated,
    ),
    Architecture(
        hf_name="Phi3ForCausalLM",
        model_type="phi3",
        keys=WINDOW_KEYS._replace(
            only=dict.fromkeys(("full_attn_mod", "interpolate_factor"), (1,))
        ),
        summary="window; partial rotary, LongRoPE",
        gguf=GgufNames("phi3", fields=_short_window),
        names=TensorNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)),
        layers=alike_in_window,
        rope_types={"su": "longrope", "yarn": "longrope"},
    ),
    Architecture(
        hf_name="Ministral3ForCausalLM",
        model_type="ministral3",
        keys=WINDOW_KEYS,
        summary="queries that grow with the position",
        gguf=GgufNames(
            "mistral3",
            pairs_are_neighbours=True,
            required=(HEAT_KEY,),
            rope=_heat_of_gguf,
        ),
        graph=_scaled_by_position,
        wrappers=("Mistral3ForConditionalGeneration",),
        layers=alike_in_window,
    ),
    Architecture(
        hf_name="HunYuanDenseV1ForCausalLM",
        model_type="hunyuan_v1_dense",
        keys=KnownKeys(
            only={
                **dict.fromkeys(("use_qk_norm", "use_rotary_pos_emb"), (True,)),
                **dict.fromkeys(("use_cla", "use_mla", "use_mixed_mlp_moe"), (False,)),
                **{"norm_type": ("rms", "hf_rms"), "num_shared_expert": (1,), "num_experts": (1,)},
            }
        ),
        summary="norms of heads behind the rotation",
        gguf=GgufNames("hunyuan-dense"),
        names=TensorNames(
            query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm"
        ),
        query_key_norm=lambda _: True,
        **BIASED,
        graph=lambda _: Graph(norms_after_rotation=True),
        rope_types={"dynamic": "ntk_alpha"},
    ),
    Architecture(
        hf_name="SeedOssForCausalLM",
        model_type="seed_oss",
        qkv_bias="attention_bias",
        output_bias="attention_out_bias",
        ffn_bias="mlp_bias",
    ),
    Architecture(
        hf_name="MinistralForCausalLM",
        model_type="ministral",
        layers=sliding(all_slide),
    ),
    Architecture(
        hf_name="CwmForCausalLM",
        model_type="cwm",
        ffn_bias="mlp_bias",
        layers=sliding(first_of(4)),
    ),
    Architecture(
        hf_name="HeliumForCausalLM",
        model_type="helium",
        summary="rotation of neighbours",
        qkv_bias="attention_bias",
        ffn_bias="mlp_bias",
        graph=lambda _: Graph(norm="rms_rounded_once"),
        pairs_are_neighbours=True,
    ),
    Architecture(
        hf_name="ArceeForCausalLM",
        model_type="arcee",
        summary="FFN without gates",
        gguf=GgufNames("arcee", pairs_are_neighbours=True),
        names=TensorNames(gate_up=("mlp.up_proj",)),
        **BIASED,
        ffn_bias="mlp_bias",
        graph=lambda _: Graph(is_gated=False),
    ),
)
