"""A window over a model that has none, for texts without an end (StreamingLLM, Xiao et al., arXiv
2309.17453): a token sees the text's beginning and its last positions, whatever lies between.

    positions   0 .. kept | given up | p - size + 1 .. p

Keys stay rotated by their positions in the text. For the beginning queries are rotated as if it
stood right before the window, so that no distance is longer than `kept + size`. All of that follows
from positions alone: any cut of the text gives the same bits.
"""

from msgspec.structs import replace

from draftwerk.model.checkpoint.config import LayerKind, ModelConfig
from draftwerk.model.checkpoint.info import ModelInfo, TokenHeads
from draftwerk.model.checkpoint.model_options import AttentionWindow
from draftwerk.model.checkpoint.unsupported import Refused

LONGEST = 2**20
"""Tokens of a text: float32 angles are exact to a few hundredths there."""


def windowed_config(config: ModelConfig, window: AttentionWindow) -> ModelConfig:
    """Return the config of a model whose layers all have the window. Raises Refused."""
    if switch := config.unlike_llama():
        raise Refused(f"{config.architecture}: a window over {switch} is not served")
    kinds = (LayerKind(window.size),) * config.layer_count
    return replace(config, layers=kinds, kept=window.kept, context_max=LONGEST)


def windowed_info(info: ModelInfo, window: AttentionWindow) -> ModelInfo:
    """Return what is known of a model before it is loaded, likewise. Raises Refused."""
    seen = window.size + window.kept
    if seen > info.context_max:
        raise Refused(f"a window of {seen} positions is longer than {info.name}'s context")
    return replace(
        info,
        context_max=LONGEST,
        window=window.size,
        kept=window.kept,
        window_heads=TokenHeads(info.kv_heads_per_token, info.head_size),
    )
