"""The draft head of a target on a CPU: one made for it, or a layer or more that files bring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import replace as with_fields
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.signature import Attention
from draftwerk.model.batch.batch import KeepingForward, Pages
from draftwerk.model.checkpoint.assistant import read_assistant
from draftwerk.model.checkpoint.assistant_config import is_assistant
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.dflash_config import is_dflash
from draftwerk.model.checkpoint.dflash_weights import read_dflash
from draftwerk.model.checkpoint.eagle_head import EagleHead, read_eagle
from draftwerk.model.checkpoint.hf_config import read_supported
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.mtp_layer import MtpWeights, read_mtp
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import WeightMatrix, Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.draft_head.head_memory import MTP, NO_MTP, WITHOUT_FILE
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, BLOCKS, CAPACITY, HeadWindows
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised, rows_of
from draftwerk.model.process.assistant_heads import native_assistant, torch_assistant
from draftwerk.model.process.dflash_heads import native_dflash, torch_dflash
from draftwerk.model.process.head_products import embedded, row_product
from draftwerk.model.process.parts import NativePart, TorchPart, vocabulary_of
from draftwerk.model.ranks.share import Share
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.rotation import Rotaries
from draftwerk.model.reference.sampler import best_tokens
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.eagle import EagleLayer, KeptStates, RowProduct
from draftwerk.model.step.layer_heads.layer_head import LayerHead, RankTokens
from draftwerk.model.step.layer_heads.mtp import HiddenForward, MtpLayer, guessed

MTP_NAME = "the MTP layer of the model's files"
CPU = torch.device("cpu")


def draft_head_of(options: ModelOptions, config: ModelConfig, weights: Weights) -> DraftHead | None:
    """Return the draft head that options name, if it is of the server's own kind."""
    if options.draft_head == "off" or has_layer(options):
        return None
    return find(options.draft_head, config, weights)


def torch_head(options: ModelOptions, part: TorchPart, share: Share) -> BoundHead | None:
    """Return a target's draft head in torch, if it has one."""
    model, forward = part.model, part.forward
    embedding = model.weights.embedding
    vocabulary = vocabulary_of(options, model.weights, embedding, share, embedding.dtype)
    if head := draft_head_of(options, model.config, vocabulary):
        return BoundHead(step=TorchStep(head, vocabulary), forward=forward)
    refuse_layer_on(embedding.device, options)
    if not has_layer(options):
        return None
    _check_whole(options, share)
    if options.draft_head != MTP:
        folder = Path(options.draft_head)
        if is_assistant(folder):
            assistant = read_assistant(folder, model.config, dtype=embedding.dtype)
            return torch_assistant(assistant, model.config, embedding, forward)
        if is_dflash(folder):
            drafter = read_dflash(folder, read_supported(model.directory))
            return torch_dflash(drafter, model.config, embedding, vocabulary.lm_head, forward)
        return torch_eagle(read_eagle(folder, model.config), embedding, forward)
    mtp = _mtp_of(model, partial(read_mtp, dtype=embedding.dtype))
    step = torch_mtp(mtp, vocabulary, forward.attention, model.config.eos_token_ids)
    return BoundHead(step=step, forward=forward, windows=step.windows, name=MTP_NAME)


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
    if not has_layer(options):
        return None
    _check_whole(options, share)
    embedding = model.weights.embedding if forward.embedding is None else forward.embedding
    if options.draft_head != MTP:
        folder = Path(options.draft_head)
        if is_assistant(folder):
            assistant = read_assistant(folder, model.config, dequantise=dequantised)
            return native_assistant(assistant, options, part, embedding, rank)
        if is_dflash(folder):
            drafter = read_dflash(folder, read_supported(model.directory))
            own = drafter, model.config, embedding, vocabulary.lm_head
            return native_dflash(*own, options.dtype, pool, rank, forward)
        eagle = read_eagle(folder, model.config)
        return native_eagle(eagle, embedding, options.dtype, pool, rank, forward)
    mtp = _mtp_of(model, partial(read_mtp, dequantise=dequantised))
    target = Weights(embedding, (), vocabulary.norm, vocabulary.lm_head)
    step = native_mtp(mtp, target, options.dtype, pool, rank, model.config)
    return BoundHead(step=step, forward=forward, windows=step.windows, name=MTP_NAME)


def has_layer(options: ModelOptions) -> bool:
    """Whether the draft head is a decoder layer: the model's own, or that in a folder."""
    if options.draft_head in WITHOUT_FILE:
        return False
    return options.draft_head == MTP or Path(options.draft_head).is_dir()


def refuse_layer_on(device: torch.device, options: ModelOptions) -> None:
    """Raise Refused where a decoder layer is to draft on a GPU."""
    if has_layer(options) and device.type != "cpu":
        raise Refused(f"draft_head {options.draft_head}: not on {device.type}")


def _check_whole(options: ModelOptions, share: Share) -> None:
    if share.shard is not None:
        raise Refused(f"draft_head {options.draft_head}: not of a model divided among processes")


def _mtp_of(model: Checkpoint, read: Callable[[Path], MtpWeights | None]) -> MtpWeights:
    """Return a model's MTP layer. Raises Refused where there is none."""
    if (found := read(model.directory)) is None:
        raise Refused(NO_MTP)
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
    own = "fp32" if dtype == "fp32" else "int8"
    forward = NativeForward(config, weights, own, pool, shard=shard)
    fc = row_product(mtp.fc, dtype, pool)
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
    norms, embed = (mtp.embedding_norm, mtp.hidden_norm), partial(embedded, embedding)
    layer = MtpLayer(norms, mtp.config.norm_eps, tokens, embed, fc, stage)
    return LayerHead(layer, pages, rank, HeadWindows(CAPACITY))


def torch_eagle(eagle: EagleHead, embedding: Tensor, forward: TorchForward) -> BoundHead:
    """Return an EAGLE-3 head in torch."""

    def product(matrix: Tensor) -> RowProduct:
        own = matrix.to(embedding.dtype)
        return lambda rows: linear(rows.to(own.dtype), own).float()

    products = {name: product(each) for name, each in eagle.matrices.items()}
    return _eagle_head(eagle, products, embedding, embedding.dtype, best_tokens, forward)


def native_eagle(
    eagle: EagleHead,
    embedding: WeightMatrix,
    dtype: str,
    pool: Pool,
    rank: RankTokens,
    forward: NativeForward,
) -> BoundHead:
    """Return an EAGLE-3 head whose products are native, in eight bits but for fp32."""
    products = {name: row_product(each, dtype, pool) for name, each in eagle.matrices.items()}
    page_dtype = torch.float32 if dtype == "fp32" else torch.bfloat16
    return _eagle_head(eagle, products, embedding, page_dtype, rank, forward)


def _eagle_head(
    eagle: EagleHead,
    products: Mapping[str, RowProduct],
    embedding: WeightMatrix,
    page_dtype: torch.dtype,
    rank: RankTokens,
    forward: KeepingForward,
) -> BoundHead:
    embed = partial(embedded, embedding if eagle.embedding is None else eagle.embedding)
    layer = EagleLayer(
        products,
        eagle.norms,
        eagle.vocabulary,
        embed,
        Rotaries(eagle.config, CPU),
        attend,
        epsilon=eagle.config.norm_eps,
        norms_residual=eagle.norms_residual,
    )
    step = LayerHead(layer, _pages(eagle.config, page_dtype), rank, HeadWindows(CAPACITY))
    states = KeptStates(forward, eagle.target_layers)
    numbers = sum(each.numel() for each in eagle.matrices.values())
    guessed = f"{len(eagle.vocabulary):,} tokens are guessed"
    name = f"an EAGLE-3 layer of {numbers / 1e6:,.1f} M weights; {guessed}"
    return BoundHead(step=step, forward=states, windows=step.windows, name=name)


def _pages(config: ModelConfig, dtype: torch.dtype, width: int = 0) -> Pages:
    return allocate(config, CAPACITY * BLOCKS, BLOCK_SIZE, dtype, CPU, width)
