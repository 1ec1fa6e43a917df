"""The files of an EAGLE-3 head (arXiv 2503.01840), and whether it fits a target, without torch."""

import re
from pathlib import Path
from typing import Any, NamedTuple, cast

from draftwerk.model.checkpoint.architectures import check_keys
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.drafter_plan import (
    DrafterPlan,
    check_same,
    check_shapes,
    layers_as,
)
from draftwerk.model.checkpoint.families.architecture import Json, counted
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.inventory import TensorShape
from draftwerk.model.checkpoint.unsupported import Refused

BIASES = ("attention_bias", "mlp_bias")
VARIANTS = ("norm_before_fc", "fc_norm", "norm_output")
"""Variants that a config may ask for and that are not computed."""
PREFIXES = re.compile(r"(?:model\.)?(?:midlayer\.|layers\.0\.)?")
"""The prefixes of tensors: the layer has had several names."""
NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm", "norm")
MATRICES = {
    "fc": ("fc",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
    "lm_head": ("lm_head",),
}
"""Weights that are kept stacked, by what they are called here."""
EMBEDDING, OFFSETS = "embed_tokens.weight", "d2t"
UNREAD = ("t2d", "rotary_emb.inv_freq", "self_attn.rotary_emb.inv_freq")
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
OF_HEAD = {
    *("draft_vocab_size", "eagle_config", "transformer_layer_config", "norm_before_residual"),
    *("target_hidden_size", "target_model_type", "embed_requires_grad", "has_no_defaults_at_init"),
    *("speculators_config", "speculators_model_type", "speculators_version", "algorithm"),
    *("dtype", "torch_dtype", "auto_map", "architectures", "model_type"),
    *(LAYER_IDS, *VARIANTS),
}
"""Keys beside those of the layer; some say again what the tensors do, or how a head was made."""


class EagleConfig(NamedTuple):
    """What the file says of the head, and of its layer as a Llama of this one layer."""

    head: Json
    layer: Json
    """Its vocabulary is that which the head guesses."""
    vocab_size: Any
    """The target's, as the file says."""

    def target_layers(self, count: int) -> tuple[int, ...]:
        """Return the layers before which states are read; a nested list has those behind which."""
        nested = (self.head.get("eagle_config") or {}).get(LAYER_IDS)
        own = self.head.get(LAYER_IDS) or [2, count // 2, count - 3]
        found = sorted({each + 1 for each in nested} if nested else set(own))
        if len(found) != 3 or not 0 <= found[0] <= found[2] < count:
            raise Refused(f"{LAYER_IDS}: {found} are not three of the model's {count} layers")
        return tuple(found)


def plan_eagle(directory: Path, _: Path, target: ModelConfig) -> DrafterPlan:
    """Return what the head in a folder takes. Raises Refused, naming what does not fit."""
    own = read_eagle_config(directory)
    if own.vocab_size is not None:
        check_same("vocab_size", own.vocab_size, target.vocab_size)
    count = own.layer["vocab_size"]
    return DrafterPlan(
        name=f"an EAGLE-3 layer that guesses {count:,} tokens",
        tensors=eagle_tensors(directory, own, target),
        layers=own.layer,
        state_size=len(own.target_layers(target.layer_count)) * target.hidden_size,
    )


def read_eagle_config(directory: Path) -> EagleConfig:
    """Return a head's configuration. Raises Refused."""
    if (head := read_json(directory / "config.json")) is None:
        raise Refused("it has no config.json")
    if asked := [name for name in VARIANTS if head.get(name)]:
        raise Refused(f"config.json: {asked[0]} is not supported")
    nested = head.get("transformer_layer_config")
    own = cast(Json, nested) if isinstance(nested, dict) else head
    own = {key: value for key, value in own.items() if key != "dtype"}
    said = {key: value for key, value in {**head, **own}.items() if key not in OF_HEAD}
    check_keys({**said, "architectures": ["LlamaForCausalLM"]})
    if biases := [name for name in BIASES if own.get(name)]:
        raise Refused(f"config.json: {biases[0]} is not supported: the layer has no biases")
    layer = layers_as(own, "LlamaForCausalLM", "llama")
    if layer["num_hidden_layers"] != 1:
        raise Refused(f"config.json: {layer['num_hidden_layers']} layers, where one is supported")
    guessed = counted("draft_vocab_size", head.get("draft_vocab_size") or layer["vocab_size"])
    return EagleConfig(head, {**layer, "vocab_size": guessed}, own.get("vocab_size"))


def eagle_tensors(
    directory: Path, own: EagleConfig, target: ModelConfig
) -> dict[str, StoredTensor]:
    """Return a head's tensors. Raises Refused where one lacks, is unknown or of another shape."""
    stored = {
        PREFIXES.sub("", name, count=1): tensor._replace(name=name)
        for name, tensor in stored_tensors(directory).items()
    }
    shapes = _shapes(model_config(own.layer, {}), target)
    hidden, guessed = shapes["norm.weight"], shapes["lm_head.weight"][:1]
    optional = {EMBEDDING: (target.vocab_size, *hidden), OFFSETS: guessed}
    if guessed != (target.vocab_size,):
        shapes[OFFSETS] = guessed
    if hidden != (target.hidden_size,):
        shapes[EMBEDDING] = optional[EMBEDDING]
    known = {**optional, **shapes}
    if unknown := [each for name, each in stored.items() if name not in (*known, *UNREAD)]:
        raise Refused(f"{unknown[0].name} is not read by the layer of a Llama")
    asked = {name: known[name] for name in known if name in (*shapes, *stored)}
    check_shapes(stored, asked, (OFFSETS,))
    return stored


def _shapes(config: ModelConfig, target: ModelConfig) -> dict[str, TensorShape]:
    """Return what the tensors' shapes must be."""
    hidden, ffn = config.hidden_size, config.ffn_size
    heads, key_heads = (config.head_size * n for n in (config.num_heads, config.num_kv_heads))
    query, key, value = MATRICES["qkv"]
    shapes: dict[str, TensorShape] = {
        "fc": (hidden, 3 * target.hidden_size),
        **{query: (heads, 2 * hidden), key: (key_heads, 2 * hidden)},
        **{value: (key_heads, 2 * hidden), "self_attn.o_proj": (hidden, heads)},
        **dict.fromkeys(MATRICES["gate_up"], (ffn, hidden)),
        **{"mlp.down_proj": (hidden, ffn), "lm_head": (config.vocab_size, hidden)},
        **dict.fromkeys(NORMS, (hidden,)),
    }
    return {f"{name}.weight": shape for name, shape in shapes.items()}
