"""The keys of a GGUF under its architecture's name: read, without effect, or refused.

A key is read if a row of the families, or the common part, looks it up; what is left after that has
to be in the lists below. Other prefixes are other programs' own, but for those of files that are
no models.
"""

from collections.abc import Collection, Mapping
from typing import Any

from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because
from draftwerk.model.checkpoint.unsupported import Refused

WINDOW, CONTEXT = ".attention.sliding_window", ".context_length"
_NO_LAYERS = (0, 1)
KEYS = KnownKeys(
    without_effect=because("the tensors have the size", ".vocab_size")
    | because("texts are as exact beyond the training's context", ".rope.scaling.finetuned")
    | because("the rows are in the order that the converter gave them", ".tensor_data_layout")
    | because(
        "angles by time, height and width are one position in a text", ".rope.dimension_sections"
    )
    | because("images are not read", ".mm.tokens_per_image", ".n_deepstack_layers"),
    only={
        **dict.fromkeys((".expert_group_count", ".expert_group_used_count"), _NO_LAYERS),
        **dict.fromkeys((".interleave_moe_layer_step", ".moe_every_n_layers"), _NO_LAYERS),
        **dict.fromkeys(
            (".expert_count", ".expert_used_count", ".leading_dense_block_count"), (0,)
        ),
        **dict.fromkeys((".expert_feed_forward_length", ".expert_shared_count"), (0,)),
        **dict.fromkeys((".expert_shared_feed_forward_length", WINDOW), (0,)),
        **dict.fromkeys((".attention.max_alibi_bias", ".attention.clamp_kqv"), (0,)),
        **dict.fromkeys((".attn_logit_softcapping", ".final_logit_softcapping"), (0,)),
        **dict.fromkeys((".router_logit_softcapping", ".attention.scale"), (0,)),
        **dict.fromkeys((".logit_scale", ".residual_scale", ".embedding_scale"), (0, 1)),
        **dict.fromkeys((".expert_weights_scale", ".rope.scaling.alpha"), (0, 1)),
        ".use_parallel_residual": (False,),
    },
)
NO_MODELS = ("adapter.", "clip.", "diffusion.", "imatrix.")
"""Prefixes of files that are something else than a model of text."""


def check_gguf_keys(
    architecture: str, fields: Mapping[str, Any], looked_up: Collection[str], known: KnownKeys
) -> None:
    """Raise Refused for a key that nobody has looked up, and that is not without effect.

    `known` are those of the family beside those of all.
    """
    kind = fields.get("general.type", "model")
    if kind != "model":
        raise Refused(f"general.type {kind!r} is not supported (only 'model')")
    for key in fields:
        if key.startswith(NO_MODELS):
            raise Refused(f"{key} is not supported: the file is no model of text")
    own = {
        key.removeprefix(architecture): value
        for key, value in fields.items()
        if key.startswith(f"{architecture}.") and key.removeprefix(architecture) not in looked_up
    }
    window, context = own.get(WINDOW), fields.get(architecture + CONTEXT)
    if isinstance(window, int) and isinstance(context, int) and window >= context:
        del own[WINDOW]
    KnownKeys(
        known.read,
        {**KEYS.without_effect, **known.without_effect},
        {**KEYS.only, **known.only},
    ).check(own, architecture)
