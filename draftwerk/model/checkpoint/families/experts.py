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
    WINDOW,
    WINDOW_KEYS,
    alike_in_window,
    every,
    gguf_windows,
    sliding,
)
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because
from draftwerk.model.checkpoint.unsupported import Refused

LayerKinds = Callable[[Json], Sequence[LayerKind]]


def experts_of(
    count: str,
    size: str = "intermediate_size",
    used: str = "num_experts_per_tok",
    normalises: str = "",
    shared: str = "",
    gates_shared: bool = False,
) -> Callable[[Json], Experts]:
    """Return what reads experts from a config by the names of its fields.

    `count` is how many there are. `normalises` is the field by which the weights of
    the chosen sum to one; without, they do. `shared` is the size of an FFN beside the experts,
    which may be gated.
    """

    def read(hf: Json) -> Experts:
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


def _all_or_none(hf: Json) -> Sequence[LayerKind]:
    """Return Qwen3-MoE's layers, of which all have the window that a switch turns on."""
    return alike_in_window(hf) if hf.get("use_sliding_window") else all_alike(hf)


def _unclipped(hf: Json) -> Graph:
    if hf.get("clip_qkv") is not None:
        raise Refused(f"clip_qkv {hf['clip_qkv']!r} is not supported")
    return Graph(head_norm="projection")


def _clamped(hf: Json) -> Graph:
    return Graph(
        norm="rms_rounded_once",
        has_sinks=True,
        gate_limit=number(hf, "swiglu_limit"),
        gate_slope=number(hf, "swiglu_alpha"),
    )


USED, SIZE = ".expert_used_count", ".expert_feed_forward_length"
SHARED_SIZE = ".expert_shared_feed_forward_length"


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


ROWS = (
    Architecture(
        hf_name="Qwen3MoeForCausalLM",
        model_type="qwen3_moe",
        summary="experts",
        gguf=GgufNames(
            "qwen3moe",
            fields=lambda get: {**gguf_experts(get), "norm_topk_prob": True},
            required=(USED, SIZE),
            keys=routed(),
        ),
        aliases={"num_local_experts": "num_experts"},
        keys=KnownKeys(
            without_effect=because("all layers have the window, or none", "max_window_layers")
        ),
        query_key_norm=lambda _: True,
        **BIASED,
        experts=experts_of(
            "num_experts",
            size="moe_intermediate_size",
            normalises="norm_topk_prob",
        ),
        layers=sparse_steps(_all_or_none),
    ),
    Architecture(
        hf_name="Qwen2MoeForCausalLM",
        model_type="qwen2_moe",
        summary="experts, and a gated one of all tokens",
        gguf=GgufNames(
            "qwen2moe",
            required=(USED, SIZE, SHARED_SIZE),
            keys=routed(normalises=False),
            fields=lambda get: {
                **gguf_experts(get),
                "shared_expert_intermediate_size": get(SHARED_SIZE),
            },
        ),
        names=TensorNames(
            shared_gate_up=("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
            shared_down="mlp.shared_expert.down_proj",
        ),
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
        keys=WINDOW_KEYS,
        aliases={"num_experts": "num_local_experts"},
        summary="experts; window",
        gguf=GgufNames(
            "llama",
            pairs_are_neighbours=True,
            fields=gguf_experts,
            required=(USED,),
            keys=routed(),
            is_for=lambda get: bool(get(".expert_count")),
        ),
        names=TensorNames(
            router="block_sparse_moe.gate",
            stacked_router="mlp.gate",
            expert_gate_up=("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
            expert_down="block_sparse_moe.experts.{}.w2",
        ),
        experts=experts_of("num_local_experts"),
        layers=everywhere(alike_in_window),
    ),
    Architecture(
        hf_name="OlmoeForCausalLM",
        model_type="olmoe",
        summary="experts; norms of queries and keys over all heads",
        gguf=GgufNames(
            "olmoe",
            fields=gguf_experts,
            required=(USED,),
            keys=routed(normalises=False),
            written=lambda _: {},
        ),
        aliases={"num_local_experts": "num_experts"},
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
            required=(USED, WINDOW),
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
        aliases={"num_experts": "num_local_experts"},
        **BIASED,
        has_expert_biases=True,
        experts_interleave=True,
        experts=experts_of("num_local_experts"),
        graph=_clamped,
        layers=everywhere(sliding(every(2))),
    ),
)
