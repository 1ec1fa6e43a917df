"""SiLU(gate) times up as one Triton kernel."""

import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.gpu.kernels.launch import ceil_div, launch

BLOCK = 1024


@triton.jit
def silu_mul_kernel(gate_up, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = lanes < width
    gate = tl.load(gate_up + row * 2 * width + lanes, mask=real, other=0.0)
    up = tl.load(gate_up + row * 2 * width + width + lanes, mask=real, other=0.0)
    wide = gate.to(tl.float32)
    # Rounded before the product, as torch does.
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out + row * width + lanes, silu * up, mask=real)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Map [T, 2 * ffn], gate before up, to [T, ffn]."""
    count, width = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty(count, width)
    launch(silu_mul_kernel, (count, ceil_div(width, BLOCK)), gate_up, out, width, BLOCK=BLOCK)
    return out
