"""RMS norm of a residual stream, and the addition before it, as one Triton kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.gpu.kernels.launch import launch, power_of_two


@triton.jit
def add_norm_kernel(
    residual,
    delta,
    weight,
    out,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    real = lanes < WIDTH
    values = tl.load(residual + row * WIDTH + lanes, mask=real, other=0.0)
    if ADD:
        values = values + tl.load(delta + row * WIDTH + lanes, mask=real, other=0.0)
        tl.store(residual + row * WIDTH + lanes, values, mask=real)
    wide = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    # Rounded before the weight, as Transformers does.
    normed = (wide * scale).to(values.dtype)
    tl.store(
        out + row * WIDTH + lanes, tl.load(weight + lanes, mask=real, other=0.0) * normed, mask=real
    )


def add_norm(residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `delta` to `residual` [T, hidden] in place, if there is one; return its norm."""
    out = torch.empty_like(residual)
    width = residual.shape[1]
    launch(
        add_norm_kernel,
        (len(residual),),
        residual,
        residual if delta is None else delta,
        weight,
        out,
        eps,
        WIDTH=width,
        BLOCK=power_of_two(width),
        ADD=delta is not None,
        num_warps=8 if width >= 2048 else 4,
    )
    return out
