"""Matrix products with a layer's weights: [T, in] to [T, out], in the formats a GPU serves."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.batch.e4m3 import FP8_MAX, saturated
from draftwerk.model.reference.tiled_products import by_tiles

Product = Callable[[Tensor], Tensor]
"""One weight matrix and its bias, as a function of the activations."""
Prepare = Callable[[Tensor, Tensor | None], Product]
"""Makes a product of a weight [out, in] and a bias [out]."""

EXACT_TILE = 128
"""Rows of every product in exact mode: one shape, hence one kernel and one order of additions.

Up to about this many rows a product takes as long as reading its weights, so a decode step loses
little; a long prefill reads them once a tile.
"""


def dense(weight: Tensor, bias: Tensor | None) -> Product:
    """Keep the weights as they are."""
    return lambda values: linear(values, weight, bias)


def fp8(weight: Tensor, bias: Tensor | None) -> Product:
    """Round weights to e4m3 with one scale a row, and activations with one scale a token."""
    rounded, scales = to_fp8(weight)

    def product(values: Tensor) -> Tensor:
        tokens, token_scales = to_fp8(values)
        found = torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]: the only way there
            tokens,
            rounded.t(),
            scale_a=token_scales,
            scale_b=scales.t(),
            out_dtype=torch.bfloat16,
        ).to(values.dtype)
        return found if bias is None else found + bias

    return product


def to_fp8(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return e4m3 values [n, k] and float32 scales [n, 1] whose product is nearly the input."""
    scales = values.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / FP8_MAX
    return saturated(values.float() / scales), scales


def tiled(prepare: Prepare, tile: int = EXACT_TILE) -> Prepare:
    """Make products compute `tile` rows at a time, so that a row does not depend on the others."""
    return lambda weight, bias: partial(by_tiles, prepare(weight, bias), tile=tile)
