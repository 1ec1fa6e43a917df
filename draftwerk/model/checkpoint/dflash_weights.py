"""DFlash drafters (arXiv 2602.06036): a few layers that guess a whole block of tokens at once.

    context  = hidden_norm(fc [what some of the target's layers come to])    of committed positions
    block    = embeddings of the last token and of as many masks as are guessed
    layers   Qwen3's: keys and values are those of the context, then of the block itself, which
             attends without a causal mask
    guess i  = the target's lm_head of norm(what mask i comes to)

Read from safetensors, as their authors' program, SGLang and vLLM have them.
"""

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.dflash_config import (
    CONTEXT_NORM,
    FC,
    DFlashConfig,
    drafter_tensors,
    read_dflash_config,
)
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.layer_weights import layer_weights
from draftwerk.model.checkpoint.loader import opened
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import LayerWeights


class DFlashWeights(NamedTuple):
    """A drafter's weights, of hidden size H, for a target of the same."""

    said: DFlashConfig
    config: ModelConfig
    """A model of these layers."""
    layers: list[LayerWeights]
    norm: Tensor
    fc: Tensor
    """[H, taps * H]"""
    context_norm: Tensor


def read_dflash(directory: Path, target: Json) -> DFlashWeights:
    """Return the drafter in a folder. Raises Refused, naming what does not fit the target."""
    try:
        said = read_dflash_config(directory, target)
        stored = drafter_tensors(directory, said)
        tensors = opened(stored, said.layers, None)
    except Refused as error:
        raise Refused(f"draft head {directory}: {error}") from None
    config = model_config(said.layers, {})
    layers = range(config.layer_count)
    return DFlashWeights(
        said,
        config,
        [layer_weights(tensors, config, whole(config), index) for index in layers],
        tensors.take("model.norm.weight"),
        tensors.take(FC),
        tensors.take(CONTEXT_NORM),
    )
