"""The target that a draft head is bound to: in torch on any device, or on the native kernels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.option_forwards import KeepingForward, StatesForward
from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.shard import Shard
from draftwerk.model.checkpoint.weights import WeightMatrix, Weights
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, HeadWindows
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.draft_head.tree import Drafter
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import kv_format
from draftwerk.model.native.stored import dequantised, rows_of
from draftwerk.model.process.drafters.head_products import embedded, row_product
from draftwerk.model.process.parts import NativePart, TorchPart, vocabulary_of
from draftwerk.model.ranks.share import Share
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.sampler import best_tokens
from draftwerk.model.step.layer_heads.eagle import RowProduct
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.model.step.layer_heads.mtp import HiddenForward, guessed

CPU = torch.device("cpu")


class ReadsStates(StatesForward, KeepingForward, Protocol):
    """A target's forward pass, of which heads read states."""


class MakeStage(Protocol):
    """Binds layers that take hidden states; they read the pages of a `host`, if it has some."""

    def __call__(
        self,
        config: ModelConfig,
        weights: Weights,
        shard: Shard,
        host: ModelConfig | None = None,
        /,
    ) -> HiddenForward: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTarget:
    """A target, and how what belongs to a head computes beside it."""

    config: ModelConfig
    directory: Path
    device: torch.device
    forward: ReadsStates
    embedding: WeightMatrix
    vocabulary: Weights
    """Its last norm and lm_head, whole."""
    reading: Mapping[str, Any]
    """How a checkpoint's tensors are read."""
    dtype: torch.dtype
    """The dtype of weights that stages are given."""
    rounding: torch.dtype
    """The dtype of what the target's own embeddings are multiplied by."""
    page_dtype: torch.dtype
    plain_product: Callable[[Tensor], RowProduct]
    stage: MakeStage
    own_step: Callable[[DraftHead], Drafter]
    """Binds a head of the server's own kind."""
    rank: RankTokens

    def product(self, matrix: Tensor, bias: Tensor | None = None) -> RowProduct:
        """Return what multiplies rows by a matrix, and adds a bias."""
        times = self.plain_product(matrix)
        return times if bias is None else partial(_added, times, bias.float().to(self.device))

    def products(
        self, tensors: Tensors, stacks: Mapping[str, Sequence[str]], prefix: str = ""
    ) -> dict[str, RowProduct]:
        """Return products with matrices that are stacked, by the names of `stacks`."""
        found: dict[str, RowProduct] = {}
        for key, names in stacks.items():
            matrix = torch.cat([tensors.take(f"{prefix}{name}.weight") for name in names])
            has_bias = f"{prefix}{names[0]}.bias" in tensors.stored
            biases = [tensors.take(f"{prefix}{name}.bias") for name in names] if has_bias else []
            found[key] = self.product(matrix, torch.cat(biases) if biases else None)
        return found

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Return embeddings in float32, scaled as the target has them."""
        multiplier = torch.tensor(self.config.graph.embedding_multiplier, dtype=self.rounding)
        return embedded(self.embedding, tokens) * float(multiplier)

    def guessed(self) -> tuple[Tensor, Tensor]:
        """Return the tokens that are guessed by the target's own lm_head, and its rows for them."""
        tokens = guessed(self.config.vocab_size, self.config.eos_token_ids)
        return tokens, rows_of(self.vocabulary.lm_head, tokens)

    def pages(
        self, config: ModelConfig, windows: HeadWindows, stage: HiddenForward | None = None
    ) -> Pages:
        """Return pages of a head's own, as its stage has them."""
        native = isinstance(stage, NativeForward)
        dtype, width = (stage.page_dtype, stage.page_width) if native else (self.page_dtype, 0)
        return allocate(config, windows.block_count, BLOCK_SIZE, dtype, self.device, width)


def _added(times: RowProduct, bias: Tensor, rows: Tensor) -> Tensor:
    return times(rows) + bias


class _TorchStage(TorchForward):
    """A stage that takes hidden states in float32."""

    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None) -> Tensor:
        own = None if hidden is None else hidden.to(self.weights.lm_head.dtype)
        return super().run_stage(batch, pages, own)


def torch_target(options: ModelOptions, part: TorchPart, share: Share) -> HeadTarget:
    """Return a target in torch."""
    model, forward, embedding = part.model, part.forward, part.model.weights.embedding
    vocabulary = vocabulary_of(options, model.weights, embedding, share, embedding.dtype)

    def product(matrix: Tensor) -> RowProduct:
        own = matrix.to(embedding)
        return lambda rows: linear(rows.to(own.dtype), own).float()

    def stage(
        config: ModelConfig, weights: Weights, shard: Shard, host: ModelConfig | None = None
    ) -> HiddenForward:
        own = forward.attention, shard
        return _TorchStage(config, weights, *own, host=host, tile=forward.tile)

    return HeadTarget(
        config=model.config,
        directory=model.directory,
        device=embedding.device,
        forward=forward,
        embedding=embedding,
        vocabulary=vocabulary,
        reading={"dtype": embedding.dtype},
        dtype=embedding.dtype,
        rounding=embedding.dtype,
        page_dtype=embedding.dtype,
        plain_product=product,
        stage=stage,
        own_step=lambda head: TorchStep(head, vocabulary),
        rank=best_tokens,
    )


def native_target(
    options: ModelOptions, part: NativePart, share: Share, rank: RankTokens
) -> HeadTarget:
    """Return a target on the native kernels; a head's matrices are in eight bits but for fp32."""
    model, forward, pool, dtype = part.model, part.forward, part.pool, options.dtype
    vocabulary = vocabulary_of(options, model.weights, forward.embedding, share)
    embedding = model.weights.embedding if forward.embedding is None else forward.embedding
    is_stored = share.shard is None and forward.embedding is None

    def stage(
        config: ModelConfig, weights: Weights, shard: Shard, host: ModelConfig | None = None
    ) -> HiddenForward:
        own = "fp32" if dtype == "fp32" else "int8"
        kept_as = "auto" if host is None else kv_format(dtype, options.kv_dtype)
        return NativeForward(config, weights, own, pool, kept_as, shard=shard, host=host)

    def own_step(head: DraftHead) -> Drafter:
        read = forward if is_stored else vocabulary.embedding
        return NativeStep(head, read, vocabulary.lm_head, pool)

    return HeadTarget(
        config=model.config,
        directory=model.directory,
        device=CPU,
        forward=forward,
        embedding=embedding,
        vocabulary=vocabulary,
        reading={"dequantise": dequantised},
        dtype=torch.float32,
        rounding=torch.bfloat16 if dtype == "bf16" else torch.float32,
        page_dtype=torch.float32 if dtype == "fp32" else torch.bfloat16,
        plain_product=partial(row_product, dtype=dtype, pool=pool),
        stage=stage,
        own_step=own_step,
        rank=rank,
    )
