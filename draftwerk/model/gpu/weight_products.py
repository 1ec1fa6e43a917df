"""Weights whose matrices are products in a format, for the forward pass of every family."""

from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.gpu.device_blocks import DeviceBlocks
from draftwerk.model.gpu.graphs import LENGTHS
from draftwerk.model.gpu.kernels.launch import is_interpreted
from draftwerk.model.gpu.kernels.products import Prepare, Product, dense
from draftwerk.model.gpu.warm_up import PROMPT_LENGTHS


def with_products(weights: Weights, layers: Prepare, head: Prepare) -> Weights:
    """Return weights with products for matrices, their kernels compiled; plain numbers stay."""
    if layers is dense:
        return weights
    compiled: set[object] = set()

    def product(matrix: Tensor, prepare: Prepare = layers) -> Tensor:
        found = prepare(matrix, None)
        form = prepare, *matrix.shape, *(matrix.kinds if isinstance(matrix, DeviceBlocks) else ())
        if form not in compiled and not is_interpreted():  # experts are alike
            _compile(found, matrix)
        compiled.add(form)
        # `TiledProducts` calls what is no tensor.
        return cast(Tensor, partial(_of_any_count, found, len(matrix)))

    inputs = weights.inputs
    return replace(
        weights,
        layers=[layer.with_matrices(product) for layer in weights.layers],
        lm_head=product(weights.lm_head, head),
        inputs=inputs and replace(inputs, projection=product(inputs.projection)),
    )


def _of_any_count(product: Product, width: int, values: Tensor) -> Tensor:
    """Multiply rows, of which chunks of prompts may have none."""
    return product(values) if len(values) else values.new_empty(0, width)


def _compile(product: Product, matrix: Tensor) -> None:
    """Multiply as many rows as kernels have forms for."""
    for rows in (*LENGTHS, *PROMPT_LENGTHS):
        product(torch.zeros(rows, matrix.shape[1], dtype=matrix.dtype, device=matrix.device))
