"""The fused operations of a GPU's layers in plain torch: the twins of its kernels."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from draftwerk.model.batch.e4m3 import FP8, saturated
from draftwerk.model.gpu.ops import HeadNorms, Ops
from draftwerk.model.reference.rotation import rotated


def add_norm(residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """The twin of `model.gpu.kernels.norm.add_norm`."""
    if delta is not None:
        residual += delta
    return norm(residual, weight, eps)


def norm(values: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm over the last dimension, computed in float32."""
    wide = values.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(values.dtype)


def rotate_and_store(
    qkv: Tensor,
    rotation: tuple[Tensor, Tensor],
    slots: Tensor,
    norms: HeadNorms | None,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """The twin of `model.gpu.kernels.rotary.rotate_and_store`."""
    kv_heads, size = keys.shape[2:]
    by_head = qkv.view(len(qkv), -1, size)
    query, key, value = by_head.split([by_head.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
    if norms is not None:
        query, key = norm(query, norms.query, norms.eps), norm(key, norms.key, norms.eps)
    turn = rotation[0][:, None], rotation[1][:, None]
    real = slots >= 0
    turned = rotated(key.float(), turn).to(qkv.dtype)
    for pages, written in ((keys, turned), (values, value)):
        kept = saturated(written) if pages.dtype == FP8 else written.to(pages.dtype)
        # As bytes where they are: not every device scatters e4m3.
        bits = kept.view(torch.uint8) if pages.dtype == FP8 else kept
        pages.view(bits.dtype).view(-1, kv_heads, size)[slots[real]] = bits[real]
    return rotated(query.float(), turn).to(qkv.dtype)


def silu_mul(gate_up: Tensor) -> Tensor:
    """The twin of `model.gpu.kernels.silu_and_mul.silu_mul`."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


TORCH_OPS = Ops(add_norm, rotate_and_store, silu_mul)
