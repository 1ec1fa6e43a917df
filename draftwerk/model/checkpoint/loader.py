"""A model's weights in memory: safetensors, mapped; projections fused as in `Weights`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from draftwerk.model.checkpoint.architectures import architecture_of
from draftwerk.model.checkpoint.checkpoint_tensors import GgufTensors, QuantisedTensors, Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.gguf_tensors import (
    Dequantise,
    GgufFiles,
    plain_values,
)
from draftwerk.model.checkpoint.hf_config import read_config, read_supported
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.inventory import check_tensors
from draftwerk.model.checkpoint.layer_weights import weights_of
from draftwerk.model.checkpoint.lora.lora_card import LoraCard
from draftwerk.model.checkpoint.lora.lora_merge import MergedAdapters
from draftwerk.model.checkpoint.quantised.scheme import scheme_of
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.stacked_experts import unstacked
from draftwerk.model.checkpoint.text_part import text_tensors
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.speculative.protocol.frames import OnProgress

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything read from disk; `directory` also holds the tokenizer's files."""

    name: str
    directory: Path
    config: ModelConfig
    weights: Weights
    files: GgufFiles | None = None
    """The files that a GGUF's weights are read from."""

    def layer_done(self, index: int) -> None:
        """Say that a layer was read."""
        if self.files is not None:
            self.files.layer_done(index)

    def being_read(self) -> AbstractContextManager[None]:
        """Have little of the files in memory. Raises Refused if one was written meanwhile."""
        return nullcontext() if self.files is None else self.files.being_read()


def load(
    source: str | None,
    dtype: torch.dtype | None,
    device: torch.device = CPU,
    progress: OnProgress = lambda _: None,
    matrices: bool = True,
    shard: Shard | None = None,
    keeps_blocks: bool = False,
    dequantise: Dequantise | None = None,
    merged: Sequence[LoraCard] = (),
    is_exact: bool = False,
) -> Checkpoint:
    """Find a model and read its weights onto a device, as `dtype` or, if None, as stored.

    A GGUF's matrices are dequantised, those of a layer as it is asked for where `dequantise` does
    so; or they keep the file's blocks, and are then parts, not tensors.

    Without `matrices` those of the layers have shapes alone (`meta`). Of a `shard` nothing else is
    read: its layers, its rows of each matrix, and empty tensors for the embedding or the lm_head
    that it does not have. The config is the whole model's.

    Adapters that are `merged` are added to the matrices. With `is_exact` numbers of a GGUF, or of
    quantised matrices, are not rounded to bf16.

    Raises Refused, naming the cause, for whatever is not a model that is served.
    """
    name, directory = locate(source, progress)
    config = read_config(directory)
    card = read_card(directory)
    shard = shard or whole(config)
    if merged and (card is not None or scheme_of(read_supported(directory))):
        raise Refused(
            f"{merged[0].path}: it cannot be merged into {name}: that takes safetensors that are "
            "not quantised; lora serves it beside them"
        )
    if card is None:
        tensors = _safetensors(directory, dtype, device, matrices, keeps_blocks, dequantise)
        tensors.merged, tensors.is_exact = MergedAdapters(merged), is_exact
        progress(f"reading {name}")
        lazily = isinstance(tensors, QuantisedTensors) and dtype is None
        return Checkpoint(name, directory, config, weights_of(tensors, config, shard, lazily))
    card.check_unchanged()
    files = GgufFiles(card, progress)
    tensors = GgufTensors(files, dtype, device, keeps_blocks, dequantise)
    tensors.is_exact = is_exact
    weights = weights_of(tensors, config, shard, lazily=dequantise is not None)
    return Checkpoint(card.name, directory, config, weights, files)


def load_vocabulary(source: str | None, dtype: torch.dtype | None) -> Weights:
    """Return a model's embedding, last norm and lm_head, whole, and no layer.

    They are mapped where they are kept as stored. Raises Refused.
    """
    _, directory = locate(source)
    config, card = read_config(directory), read_card(directory)
    if card is None:
        tensors = _safetensors(directory, dtype, CPU)
    else:
        tensors = GgufTensors(GgufFiles(card), dtype, CPU)
    return weights_of(tensors, config, replace(whole(config), layers=range(0)))


def _safetensors(
    directory: Path,
    dtype: torch.dtype | None,
    device: torch.device,
    matrices: bool = True,
    keeps_blocks: bool = False,
    dequantise: Dequantise | None = None,
) -> Tensors:
    stored, hf = text_tensors(stored_tensors(directory)), read_supported(directory)
    tensors = opened(stored, hf, dtype, device, matrices, keeps_blocks, dequantise)
    check_tensors(hf, tensors.stored)
    return tensors


def opened(
    stored: dict[str, StoredTensor],
    hf: Json,
    dtype: torch.dtype | None,
    device: torch.device = CPU,
    matrices: bool = True,
    keeps_blocks: bool = False,
    dequantise: Dequantise | None = None,
) -> Tensors:
    """Return tensors of safetensors that can be read, as `load` reads them."""
    if scheme := scheme_of(hf):
        tensors = QuantisedTensors(stored, scheme, dtype, device, matrices)
        tensors.keeps_blocks, tensors.dequantise = keeps_blocks, dequantise or plain_values
    else:
        stored = unstacked(architecture_of(hf), stored)
        tensors = Tensors(stored, dtype, device, matrices)
    tensors.experts_are_columns = architecture_of(hf).experts_interleave
    return tensors
