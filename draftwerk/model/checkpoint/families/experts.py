"""Families whose feed-forward layers are experts, of which a token's router chooses a few."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from draftwerk.model.checkpoint.config import Experts, Graph, LayerKind
from draftwerk.model.checkpoint.families.architecture import (
    BIASED,
    LISTED_MAX,
    Architecture,
    GgufNames,
    Json,
    TensorNames,
    all_alike,
    count_of,
    number,
)
from draftwerk.model.checkpoint.families.windows import (
    FULL,
    SLIDING,
    alike_in_window,
    every,
    gguf_windows,
    last_slide,
    sliding,
)
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.unsupported import Refused

LayerKinds = Callable[[Json], Sequence[LayerKind]]


def experts_of(
    *counts: str,
    size: str = "intermediate_size",
    used: str = "num_experts_per_tok",
    normalises: str = "",
    shared: str = "",
    gates_shared: bool = False,
) -> Callable[[Json], Experts]:
    """Return what reads experts from a config by the names of its fields.

    `counts` are names that the number has had. `normalises` is the field by which the weights of
    the chosen sum to one; without, they do. `shared` is the size of an FFN beside the experts,
    which may be gated.
    """

    def read(hf: Json) -> Experts:
        count = next((name for name in counts if hf.get(name) is not None), counts[0])
        found = Experts(
            count=count_of(hf, count, most=LISTED_MAX),
            used=count_of(hf, used),
            ffn_size=count_of(hf, size),
            normalises=bool(hf.get(normalises)) if normalises else True,
            shared_ffn_size=count_of(hf, shared) if shared and hf.get(shared) != 0 else 0,
            shared_is_gated=gates_shared,
        )
        if found.used > found.count:
            raise Refused(f"{used} {found.used} is more than {count} {found.count}")
        return found

    return read


def everywhere(layers: LayerKinds) -> LayerKinds:
    """Return layers that all have experts."""
    return lambda hf: [replace(one, has_experts=True) for one in layers(hf)]


def sparse_steps(layers: LayerKinds) -> LayerKinds:
    """Return Qwen's layers: every few have experts, but for those that are named."""

    def kinds(hf: Json) -> Sequence[LayerKind]:
        step, dense = hf.get("decoder_sparse_step"), hf.get("mlp_only_layers") or []
        if not isinstance(step, int) or step < 1 or not isinstance(dense, list):
            raise Refused(f"decoder_sparse_step {step!r} or mlp_only_layers {dense!r} is none")
        return [
            replace(kind, has_experts=(index + 1) % step == 0 and index not in dense)
            for index, kind in enumerate(layers(hf))
        ]

    return kinds


def _first_alternate(hf: Json) -> Sequence[str]:
    """Return Qwen2-MoE's default: with `use_sliding_window` every other of the first layers."""
    first = hf["max_window_layers"] if hf.get("use_sliding_window") else 0
    slides = [i % 2 == 0 and i < first for i in range(hf["num_hidden_layers"])]
    return [SLIDING if each else FULL for each in slides]


def _unclipped(hf: Json) -> Graph:
    if hf.get("clip_qkv") is not None:
        raise Refused(f"clip_qkv {hf['clip_qkv']!r} is not supported")
    return Graph(head_norm="projection")


def _clamped(hf: Json) -> Graph:
    if not (hf.get("rope_scaling") or hf.get("rope_parameters")):
        raise Refused("config.json lacks rope_scaling")
    return Graph(
        norm="rms_rounded_once",
        has_sinks=True,
        gate_limit=number(hf, "swiglu_limit"),
        gate_slope=number(hf, "swiglu_alpha"),
    )


def routed(normalises: bool = True, scores: int = 1) -> KnownKeys:
    """Return the keys of a family whose router has these scores, by llama.cpp's number."""
    return KnownKeys(
        only={".expert_gating_func": (0, scores), ".expert_weights_norm": (normalises,)}
    )


def gguf_experts(get: Callable[..., Any]) -> Json:
    """Return the fields of experts, under the names that the rows below have for them."""
    count = get(".expert_count")
    return {
        "num_experts": count,
        "num_local_experts": count,
        "num_experts_per_tok": get(".expert_used_count"),
        "moe_intermediate_size": get(".expert_feed_forward_length"),
    }


SPARSE_DEFAULTS: dict[str, Any] = {
    **{"sliding_window": 4096, "max_window_layers": 28, "use_sliding_window": False},
    **{"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": False},
}
ROWS = (
    Architecture(
        hf_name="Qwen3MoeForCausalLM",
        model_type="qwen3_moe",
        summary="experts",
        gguf=GgufNames(
            "qwen3moe",
            fields=lambda get: {**gguf_experts(get), "norm_topk_prob": True},
            keys=routed(),
        ),
        required=("num_key_value_heads", "head_dim"),
        defaults=SPARSE_DEFAULTS,
        query_key_norm=lambda _: True,
        **BIASED,
        experts=experts_of(
            *("num_experts", "num_local_experts"),
            size="moe_intermediate_size",
            normalises="norm_topk_prob",
        ),
        layers=sparse_steps(sliding(last_slide)),
    ),
    Architecture(
        hf_name="Qwen2MoeForCausalLM",
        model_type="qwen2_moe",
        summary="experts, and a gated one of all tokens",
        gguf=GgufNames(
            "qwen2moe",
            keys=routed(normalises=False),
            fields=lambda get: {
                **gguf_experts(get),
                "shared_expert_intermediate_size": get(".expert_shared_feed_forward_length"),
            },
        ),
        names=TensorNames(
            shared_gate_up=("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
            shared_down="mlp.shared_expert.down_proj",
        ),
        required=("num_key_value_heads", "shared_expert_intermediate_size"),
        defaults={**SPARSE_DEFAULTS, "qkv_bias": True},
        qkv_bias="qkv_bias",
        experts=experts_of(
            "num_experts",
            size="moe_intermediate_size",
            normalises="norm_topk_prob",
            shared="shared_expert_intermediate_size",
            gates_shared=True,
        ),
        layers=sparse_steps(sliding(_first_alternate)),
    ),
    Architecture(
        hf_name="MixtralForCausalLM",
        model_type="mixtral",
        summary="experts; window",
        gguf=GgufNames(
            "llama",
            pairs_are_neighbours=True,
            fields=gguf_experts,
            keys=routed(),
            is_for=lambda get: bool(get(".expert_count")),
        ),
        names=TensorNames(
            router="block_sparse_moe.gate",
            stacked_router="mlp.gate",
            expert_gate_up=("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
            expert_down="block_sparse_moe.experts.{}.w2",
        ),
        required=("num_key_value_heads",),
        experts=experts_of("num_local_experts"),
        layers=everywhere(alike_in_window),
        theta=1_000_000.0,
    ),
    Architecture(
        hf_name="OlmoeForCausalLM",
        model_type="olmoe",
        summary="experts; norms of queries and keys over all heads",
        gguf=GgufNames(
            "olmoe", fields=gguf_experts, keys=routed(normalises=False), written=lambda _: {}
        ),
        defaults={"norm_topk_prob": False, "clip_qkv": None},
        query_key_norm=lambda _: True,
        **BIASED,
        experts=experts_of("num_experts", normalises="norm_topk_prob"),
        graph=_unclipped,
        layers=everywhere(all_alike),
    ),
    Architecture(
        hf_name="GptOssForCausalLM",
        model_type="gpt_oss",
        summary="experts with clamped gates; sinks; every other one with a window",
        gguf=GgufNames(
            "gpt-oss",
            fields=lambda get: {**gguf_experts(get), **gguf_windows(get)},
            rope=lambda _: {"truncate": False},
            keys=routed(scores=3),
            written=lambda hf: {".attention.sliding_window": hf["sliding_window"]},
            ffn_norm="post_attention_norm",
        ),
        names=TensorNames(
            router="mlp.router",
            expert_gate_up=("mlp.experts.gate_up_proj",),
            expert_down="mlp.experts.down_proj",
        ),
        required=("num_key_value_heads", "head_dim"),
        defaults={
            **{"sliding_window": 128, "attention_bias": True},
            **{"swiglu_alpha": 1.702, "swiglu_limit": 7.0},
        },
        **BIASED,
        has_expert_biases=True,
        experts_interleave=True,
        experts=experts_of("num_local_experts"),
        graph=_clamped,
        layers=everywhere(sliding(every(2))),
        theta=150_000.0,
    ),
)
