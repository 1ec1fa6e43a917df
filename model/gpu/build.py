"""A loaded model made ready to run on a GPU."""

from typing import NamedTuple

import torch

from model.attention.choice import Chosen, Needs, choose_attention
from model.gpu import sampler
from model.gpu.forward import GpuForward
from model.gpu.graphs import ROWS, GraphedForward, Recorder, buckets
from model.gpu.ops import triton_ops
from model.gpu.products import Prepare, dense, fp8, tiled
from model.grammar import Grammars
from model.hub import Progress
from model.kit import TORCH_KIT, Parts
from model.loader import LoadedModel
from model.pages import allocate

FORMATS: dict[str, tuple[torch.dtype, Prepare]] = {
    "fp32": (torch.float32, dense),
    "bf16": (torch.bfloat16, dense),
    "fp16": (torch.float16, dense),
    "fp8": (torch.bfloat16, fp8),
}
"""The dtype of activations, embedding, head and pages, and how the layers' weights are kept."""
GPU_KIT = TORCH_KIT._replace(choose=sampler.choose_many)


class GpuSettings(NamedTuple):
    """How a model is to run on a GPU."""

    dtype: str = "bf16"
    attention: str = "auto"
    exact: bool = False
    block_count: int = 256
    block_size: int = 16
    rows_max: int = ROWS[-1]
    """Rows of a round up to which graphs are recorded."""


def gpu_parts(
    model: LoadedModel,
    settings: GpuSettings,
    recorder: Recorder | None,
    grammars: Grammars | None = None,
    progress: Progress = lambda _: None,
) -> tuple[Parts, Chosen]:
    """Return the parts of a runner or drafter; without a recorder, no graphs. Raises Refused.

    The model's weights are already on the device, in the dtype that FORMATS names.
    """
    config, device = model.config, model.weights.embedding.device
    context_max = min(config.context_max, settings.block_count * settings.block_size)
    needs = Needs(device, settings.block_size, settings.exact, context_max)
    chosen = choose_attention(settings.attention, needs)
    dtype, prepare = FORMATS[settings.dtype]
    prepare_head = dense
    if settings.exact:
        prepare, prepare_head = tiled(prepare), tiled(prepare_head)
    ops = triton_ops()
    forward = GpuForward(config, model.weights, chosen.attention, ops, prepare, prepare_head)
    pages = allocate(config, settings.block_count, settings.block_size, dtype, device)
    served = forward
    if recorder is not None and chosen.backend.graphs:
        which = buckets(settings.rows_max, _masks(chosen, settings.exact))
        served = GraphedForward(forward, pages, context_max, which, recorder, progress)
    parts = Parts(served, pages, config.vocab_size, GPU_KIT, grammars, host_batches=True)
    return parts, chosen


def _masks(chosen: Chosen, exact: bool) -> tuple[bool, ...]:
    """Return which rounds need graphs of their own: without masks, with them."""
    if not chosen.backend.trees:
        return (False,)
    # Otherwise masks cost nothing, so one graph serves both; a chain is all ones under the mask.
    return (False, True) if exact else (True,)
