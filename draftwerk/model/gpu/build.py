"""A loaded model made ready to run on a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.e4m3 import FP8, FP8_MAX
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.lora.lora_card import LoraCard
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.gpu import sampler
from draftwerk.model.gpu.chains import GpuChains
from draftwerk.model.gpu.choice import Chosen, Needs, choose_attention
from draftwerk.model.gpu.device_blocks import on_device, stored
from draftwerk.model.gpu.draft_tree import GpuDraftTree
from draftwerk.model.gpu.forward import GpuForward
from draftwerk.model.gpu.graphs import ROWS, GraphedForward, Recorder, buckets, row_counts
from draftwerk.model.gpu.kernels.fused import triton_ops
from draftwerk.model.gpu.kernels.launch import is_interpreted
from draftwerk.model.gpu.kernels.products import EXACT_TILE, Prepare, dense, fp8, tiled
from draftwerk.model.gpu.kernels.quantised import Quantised, to_int4, to_int8
from draftwerk.model.gpu.kernels.w8a8 import w8a8
from draftwerk.model.gpu.kernels.weight_only import weight_only
from draftwerk.model.gpu.presampled import GpuPresample
from draftwerk.model.gpu.warm_up import warm_up
from draftwerk.model.gpu.weight_products import with_products
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.step.backend import TORCH_BACKEND
from draftwerk.model.step.loaded_model import BoundHead, LoadedModel
from draftwerk.model.step.whole_prompts import all_seen, seeing
from draftwerk.model.text.grammar import Grammars
from draftwerk.speculative.protocol.frames import OnProgress


class WeightFormat(NamedTuple):
    """How a model is kept and computed."""

    dtype: torch.dtype
    """The dtype of activations, embedding and pages."""
    layers: Prepare
    head: Prepare
    exact_layers: Prepare
    exact_lm_head: Prepare

    def products(self, exact: bool) -> tuple[Prepare, Prepare]:
        """Return how products of layers, and of the head, are made."""
        return (self.exact_layers, self.exact_lm_head) if exact else (self.layers, self.head)


def _tiled(dtype: torch.dtype, layers: Prepare) -> WeightFormat:
    """Return a format whose products are cut into tiles in exact mode."""
    return WeightFormat(dtype, layers, dense, tiled(layers), tiled(dense))


def _weight_only(layers: Callable[[Tensor], Quantised]) -> WeightFormat:
    """Return a format of few bits; the head, which decides between near tokens, has eight."""
    kinds = layers, to_int8
    return WeightFormat(
        torch.bfloat16,
        *(weight_only(kind) for kind in kinds),
        *(weight_only(kind, exact=True) for kind in kinds),
    )


FORMATS: dict[str, WeightFormat] = {
    "fp32": _tiled(torch.float32, dense),
    "bf16": _tiled(torch.bfloat16, dense),
    "fp16": _tiled(torch.float16, dense),
    "fp8": _tiled(torch.bfloat16, fp8),
    "w8a8": WeightFormat(torch.bfloat16, w8a8, dense, w8a8, tiled(dense)),
    "int8": _weight_only(to_int8),
    "int4": _weight_only(to_int4),
    STORED: WeightFormat(torch.bfloat16, *[stored(exact=False)] * 2, *[stored(exact=True)] * 2),
}
FP8_CAPABILITY = (8, 9)
"""The first that converts e4m3."""
GPU_BACKEND = replace(TORCH_BACKEND, choose=sampler.choose_many)


class GpuSettings(NamedTuple):
    """How a model is to run on a GPU."""

    dtype: str = "bf16"
    attention: str = "auto"
    exact: bool = False
    block_count: int = 256
    block_size: int = 16
    rows_max: int = ROWS[-1]
    """Rows of a round up to which graphs are recorded."""
    kv_dtype: str = "auto"
    """The format of the pages: auto (as the activations) or fp8, plain e4m3 without scales."""
    drafts: bool = False
    """Whether the model is to guess chains."""
    state_slots: int = 0
    """For recurrent states."""
    extended: bool = False
    """Whether the layers are to do more than Llama's: adapters, states that draft heads read."""


def load_for_gpu(
    source: str | None,
    dtype: str,
    device: torch.device,
    progress: OnProgress,
    merged: Sequence[LoraCard] = (),
) -> Checkpoint:
    """Load a model's weights onto the device, as FORMATS takes them. Raises Refused."""
    keeps_blocks, kept = dtype == STORED, FORMATS[dtype].dtype
    model = load(source, kept, device, progress, keeps_blocks=keeps_blocks, merged=merged)
    return on_device(model, kept, device, progress) if keeps_blocks else model


def gpu_parts(
    model: Checkpoint,
    settings: GpuSettings,
    recorder: Recorder | None,
    grammars: Grammars | None = None,
    progress: OnProgress = lambda _: None,
    head: DraftHead | None = None,
) -> tuple[LoadedModel, Chosen]:
    """Return the parts of a runner or drafter; without a recorder, no graphs. Raises Refused.

    The model's weights are already on the device, in the dtype that FORMATS names.
    """
    config, device = model.config, model.weights.embedding.device
    is_fused = not settings.extended and is_llamas(model)
    context_max = min(config.context_max, settings.block_count * settings.block_size)
    fp8_pages = settings.kv_dtype == "fp8"
    if fp8_pages:
        check_fp8_pages(model)
    chosen = choose_attention(
        settings.attention,
        Needs(
            device,
            settings.block_size,
            settings.exact,
            context_max,
            fp8_pages,
            model.weights.embedding.dtype,
            config.head_size,
        ),
    )
    for reason in chosen.passed_over:
        progress(f"passed over: {reason}")
    progress(f"attention {chosen.name}")
    dtype = FP8 if fp8_pages else model.weights.embedding.dtype
    blocks = settings.block_count, settings.block_size
    pages = allocate(config, *blocks, dtype, device, state_slots=settings.state_slots)
    if is_fused:
        served, chains = _fused(model, settings, chosen, pages, recorder, progress)
    else:
        weights = with_products(model.weights, *FORMATS[settings.dtype].products(settings.exact))
        tile = EXACT_TILE if settings.exact else 0
        forward = TorchForward(config, weights, chosen.attention, tile=tile)
        served, chains = seeing(forward, config.graph.sees_all, all_seen), None
    sampler.warm_up(config.vocab_size, device)
    draft_head = None
    if head is not None:
        draft_head = BoundHead(step=GpuDraftTree(head, model.weights), forward=served)
        if recorder is not None:
            draft_head.step.record(row_counts(settings.rows_max), recorder, progress)
    presample = GpuPresample(pages, draft_head)
    presample.warm_up(config.vocab_size)
    parts = LoadedModel(
        forward=served,
        pages=pages,
        vocab_size=config.vocab_size,
        backend=replace(GPU_BACKEND, presample=presample),
        grammars=grammars,
        draft_head=draft_head,
        host_batches=is_fused,
        chains=chains,
    )
    return parts, chosen


def _fused(
    model: Checkpoint,
    settings: GpuSettings,
    chosen: Chosen,
    pages: Pages,
    recorder: Recorder | None,
    progress: OnProgress,
) -> tuple[GpuForward | GraphedForward, GpuChains | None]:
    """Return the kernels of Llama's graph, all compiled, with graphs where those can be."""
    prepare, rows_max = FORMATS[settings.dtype].products(settings.exact), settings.rows_max
    forward = GpuForward(model.config, model.weights, chosen.attention, triton_ops(), *prepare)
    if not chosen.backend.graphs:
        return forward, None
    masks = _masks(chosen, settings.exact)
    context_max = min(model.config.context_max, settings.block_count * settings.block_size)
    if not is_interpreted():
        progress("compiling kernels")
        warm_up(forward, pages, context_max, masks)
    served, chains = forward, None
    if recorder is not None:
        which = buckets(rows_max, masks)
        served = GraphedForward(forward, pages, context_max, which, recorder, progress)
    if settings.drafts:
        rows, masked = row_counts(rows_max), False not in masks
        chains = GpuChains(forward, pages, context_max, rows, masked, recorder, progress)
    return served, chains


def is_llamas(model: Checkpoint) -> bool:
    """Return whether a model is Llama's plain graph, with norms before its layers' parts alone."""
    layer = model.weights.layers[0]
    norms = layer.attention_norm, layer.ffn_norm
    is_before = None not in norms and layer.after_attention is layer.after_ffn is None
    return is_before and not model.config.unlike_llama()


def check_fp8_pages(model: Checkpoint) -> None:
    """Raise Refused where keys and values cannot be kept in plain e4m3.

    Its steps are relative, so it needs no scale as long as the greatest numbers fit. Some models'
    keys do not: their biases show it (rotation turns pairs, hence the margin of two).
    """
    device, config = model.weights.embedding.device, model.config
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        raise Refused("kv_dtype fp8 needs a GPU of compute capability 8.9 or newer")
    found = [0.0]
    for index, layer in enumerate(model.weights.layers):
        if layer.qkv_bias is not None and config.kind(index).mixer == "attention":
            heads = config.key_heads(index)
            first = config.num_heads * heads.size
            found.append(float(layer.qkv_bias[first:][: heads.heads * heads.size].abs().max()))
    if max(found) > FP8_MAX / 2:
        raise Refused(
            f"kv_dtype fp8 holds numbers up to {FP8_MAX:.0f}; this model's keys have a bias of "
            f"{max(found):.0f}"
        )


def _masks(chosen: Chosen, exact: bool) -> tuple[bool, ...]:
    """Return which rounds need graphs of their own: without masks, with them."""
    # Where masks cost nothing one graph serves both; a chain is all ones under the mask. Elsewhere
    # trees are another kernel's, or the same one's with paths.
    return (False, True) if exact or not chosen.backend.trees else (True,)
