"""The MTP layer of a checkpoint: one more decoder layer, trained to guess the token after next.

    hidden = fc [norm(embedding of token i + 1), norm(state of token i)]
    guess  = the model's own head of norm(layer(hidden))

As in DeepSeek-V3 (arXiv 2412.19437), Qwen3-Next and Qwen3.5. Transformers leaves it out. Of several
layers the first is read.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.checkpoint.architectures import architecture_of
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.families.windows import FULL
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.gguf_tensors import Dequantise
from draftwerk.model.checkpoint.hf_config import model_config, read_supported
from draftwerk.model.checkpoint.inventory import check_tensors
from draftwerk.model.checkpoint.layer_weights import layer_weights
from draftwerk.model.checkpoint.loader import opened
from draftwerk.model.checkpoint.mtp_config import PREFIX
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD, text_tensors
from draftwerk.model.checkpoint.weights import LayerWeights

NAMES = {"mtp.layers.0.": "model.layers.0.", "mtp.norm.": "model.norm.", PREFIX: ""}
"""The names of tensors, and what they are called in a model of one layer."""
FC, EMBEDDING_NORM, HIDDEN_NORM = "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden"
BESIDE = tuple(f"{name}.weight" for name in (FC, EMBEDDING_NORM, HIDDEN_NORM))
ONE_LAYER: Json = {
    **{"num_hidden_layers": 1, "layer_types": [FULL]},
    **{"mlp_only_layers": [], "decoder_sparse_step": 1},
}


class MtpWeights(NamedTuple):
    """The weights that an MTP layer has beside the target's embedding and head."""

    config: ModelConfig
    """The configuration of a model of this one layer."""
    layer: LayerWeights
    norm: Tensor
    fc: Tensor
    """[hidden, 2 * hidden]: of the embedding, then of the state."""
    embedding_norm: Tensor
    hidden_norm: Tensor


def read_mtp(
    directory: Path, dtype: torch.dtype | None = None, dequantise: Dequantise | None = None
) -> MtpWeights | None:
    """Return a checkpoint's MTP layer, None of one without. Raises Refused, naming the tensor."""
    hf = read_supported(directory)
    if read_card(directory) is not None or not architecture_of(hf).has_mtp:
        return None
    stored = stored_tensors(directory)
    if f"{PREFIX}{FC}.weight" not in stored:
        return None
    held = text_tensors(stored)
    named = {
        _renamed(name): tensor._replace(name=name)
        for name, tensor in stored.items()
        if name.startswith(PREFIX)
    }
    shared = {name: held[name] for name in (EMBEDDING, HEAD) if name in held}
    alone = {**hf, **ONE_LAYER}
    tensors = opened(text_tensors(named) | shared, hf, dtype, dequantise=dequantise)
    check_tensors(alone, {k: v for k, v in tensors.stored.items() if k not in BESIDE})
    config = model_config(alone, {})
    row = architecture_of(hf)
    return MtpWeights(
        config,
        layer_weights(tensors, config, whole(config), 0),
        tensors.norm(row.names.last_norm, row),
        tensors.matrix([(f"{FC}.weight", range(config.hidden_size))]),
        tensors.norm(EMBEDDING_NORM, row),
        tensors.norm(HIDDEN_NORM, row),
    )


def _renamed(name: str) -> str:
    prefix = next(each for each in NAMES if name.startswith(each))
    return NAMES[prefix] + name.removeprefix(prefix)
