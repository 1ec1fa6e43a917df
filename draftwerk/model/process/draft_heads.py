"""The draft head of a target on a CPU: one made for it, or its file's own MTP layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import replace as with_fields
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.attention.signature import Attention
from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.mtp_layer import MtpWeights, read_mtp
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import WeightMatrix, Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, BLOCKS, HeadWindows
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import PackedMatrix, dequantised, quantised, rows_of
from draftwerk.model.process.parts import NativePart, TorchPart, vocabulary_of
from draftwerk.model.ranks.share import Share
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.sampler import best_tokens
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.layer_head import CAPACITY, LayerHead, RankTokens
from draftwerk.model.step.layer_heads.mtp import HiddenForward, MtpLayer, guessed

FC_KIND = "Q8_0"
MTP = "mtp"
"""The draft head that is asked for where a model's own MTP layer is to draft."""
CPU = torch.device("cpu")


def draft_head_of(options: ModelOptions, config: ModelConfig, weights: Weights) -> DraftHead | None:
    """Return the draft head that options name, if it fits the model."""
    if options.draft_head in ("off", MTP):
        return None
    return find(options.draft_head, config, weights)


def torch_head(options: ModelOptions, part: TorchPart, share: Share) -> BoundHead | None:
    """Return a target's draft head in torch, if it has one."""
    model, forward = part.model, part.forward
    embedding = model.weights.embedding
    vocabulary = vocabulary_of(options, model.weights, embedding, share, embedding.dtype)
    if head := draft_head_of(options, model.config, vocabulary):
        return BoundHead(step=TorchStep(head, vocabulary), forward=forward)
    refuse_mtp_on(embedding.device, options)
    mtp = _mtp_of(options, model, share, partial(read_mtp, dtype=embedding.dtype))
    if mtp is None:
        return None
    step = torch_mtp(mtp, vocabulary, forward.attention, model.config.eos_token_ids)
    return BoundHead(step=step, forward=forward, windows=step.windows)


def native_head(
    options: ModelOptions, part: NativePart, share: Share, rank: RankTokens
) -> BoundHead | None:
    """Return a target's draft head on the native kernels, if it has one."""
    model, forward, pool = part.model, part.forward, part.pool
    vocabulary = vocabulary_of(options, model.weights, forward.embedding, share)
    if head := draft_head_of(options, model.config, vocabulary):
        is_stored = share.shard is None and forward.embedding is None
        embedding = forward if is_stored else vocabulary.embedding
        return BoundHead(
            step=NativeStep(head, embedding, vocabulary.lm_head, pool), forward=forward
        )
    mtp = _mtp_of(options, model, share, partial(read_mtp, dequantise=dequantised))
    if mtp is None:
        return None
    embedding = model.weights.embedding if forward.embedding is None else forward.embedding
    target = Weights(embedding, (), vocabulary.norm, vocabulary.lm_head)
    step = native_mtp(mtp, target, options.dtype, pool, rank, model.config)
    return BoundHead(step=step, forward=forward, windows=step.windows)


def refuse_mtp_on(device: torch.device, options: ModelOptions) -> None:
    """Raise Refused where a model's own MTP layer is to draft on a GPU."""
    if options.draft_head == MTP and device.type != "cpu":
        raise Refused(f"draft_head mtp: not on {device.type}")


def _mtp_of(
    options: ModelOptions,
    model: Checkpoint,
    share: Share,
    read: Callable[[Path], MtpWeights | None],
) -> MtpWeights | None:
    """Return a model's MTP layer, if it is asked for. Raises Refused where there is none."""
    if options.draft_head != MTP:
        return None
    if share.shard is not None:
        raise Refused("draft_head mtp: not of a model divided among processes")
    if (found := read(model.directory)) is None:
        raise Refused("draft_head mtp: the model's files hold no MTP layer")
    return found


def torch_mtp(
    mtp: MtpWeights, target: Weights, attention: Attention, ends: Sequence[int]
) -> LayerHead:
    """Return an MTP layer in torch."""
    tokens = guessed(len(target.lm_head), ends)
    config, shard, weights = _alone(mtp, target.embedding[:0], target.lm_head[tokens])
    forward = TorchForward(config, weights, attention, shard)
    fc = mtp.fc

    def combined(rows: Tensor) -> Tensor:
        return linear(rows.to(fc.dtype), fc)

    pages = _pages(config, target.embedding.dtype)
    return _layer_head(mtp, tokens, target.embedding, combined, forward, pages, best_tokens)


def native_mtp(
    mtp: MtpWeights,
    target: Weights,
    dtype: str,
    pool: Pool,
    rank: RankTokens,
    config: ModelConfig,
) -> LayerHead:
    """Return an MTP layer on the native kernels, in eight bits but for fp32."""
    tokens = guessed(config.vocab_size, config.eos_token_ids)
    empty = torch.empty(0, config.hidden_size)
    config, shard, weights = _alone(mtp, empty, rows_of(target.lm_head, tokens))
    is_exact = dtype == "fp32"
    forward = NativeForward(config, weights, "fp32" if is_exact else "int8", pool, shard=shard)
    packed = None if is_exact else PackedMatrix((quantised(mtp.fc, FC_KIND, pool),), pool)
    fc = partial(linear, weight=mtp.fc.float()) if packed is None else packed.products
    pages = _pages(config, forward.page_dtype, forward.page_width)
    return _layer_head(mtp, tokens, target.embedding, fc, forward, pages, rank)


def _alone(
    mtp: MtpWeights, embedding: Tensor, lm_head: Tensor
) -> tuple[ModelConfig, Shard, Weights]:
    """Return the layer as a model that embeds no tokens, with this head."""
    config = with_fields(mtp.config, vocab_size=len(lm_head))
    shard = replace(whole(config), is_first=False)
    return config, shard, Weights(embedding, [mtp.layer], mtp.norm, lm_head)


def _layer_head(
    mtp: MtpWeights,
    tokens: Tensor,
    embedding: WeightMatrix,
    fc: Callable[[Tensor], Tensor],
    stage: HiddenForward,
    pages: Pages,
    rank: RankTokens,
) -> LayerHead:
    norms, embed = (mtp.embedding_norm, mtp.hidden_norm), partial(_embedded, embedding)
    layer = MtpLayer(norms, mtp.config.norm_eps, tokens, embed, fc, stage)
    return LayerHead(layer, pages, rank, HeadWindows(CAPACITY))


def _pages(config: ModelConfig, dtype: torch.dtype, width: int = 0) -> Pages:
    return allocate(config, CAPACITY * BLOCKS, BLOCK_SIZE, dtype, CPU, width)


def _embedded(embedding: WeightMatrix, tokens: Sequence[int]) -> Tensor:
    return rows_of(embedding, torch.tensor(tokens)).float()
