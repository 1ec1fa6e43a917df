"""Operations of a model of Transformers, made so that a row's bits do not depend on other rows.

Products are made in tiles of equally many rows. Functions of single numbers, which torch computes
in vectors, and one by one with other bits at the ends of what each thread has, are given whole
vectors on one thread.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad
from torch.overrides import TorchFunctionMode

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.reference.tiled_products import TILE, by_tiles

PIECE = 2**15
"""Numbers up to which torch computes on one thread."""
VECTORS = 128
"""Numbers that are whole vectors of every type and instruction set, two at a time."""


class RowTiles(TorchFunctionMode):
    """While entered, torch's functions keep rows apart, or raise Refused where they may not."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        handler = HANDLERS.get(getattr(func, "__name__", ""))
        if handler is None:
            return func(*args, **kwargs or {})
        return handler(func, *args, **kwargs or {})


def _linear(_: object, values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply rows [..., in] by weights [out, in]."""
    rows = values.reshape(-1, values.shape[-1])
    found = by_tiles(lambda tile: linear(tile, weight, bias), rows, TILE)
    return found.view(*values.shape[:-1], len(weight))


def _product(func: Callable[..., Tensor], first: Tensor, second: Tensor) -> Tensor:
    """Multiply rows [..., in] by weights [in, out], or numbers by numbers."""
    if first.shape[-1] == 1:
        return func(first, second)
    if second.ndim != 2:
        return _refuse(func)
    return _linear(func, first, second.T)


def _affine(func: object, bias: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Multiply rows by weights [in, out], and add biases."""
    return _linear(func, first, second.T, bias)


def _in_vectors(func: Callable[..., Tensor], values: Tensor, *rest: Any, **named: Any) -> Tensor:
    """Return a function of each number, computed in whole vectors."""
    count = values.numel()
    flat = pad(values.reshape(-1), (0, -count % VECTORS))
    parts = [func(piece, *rest, **named) for piece in flat.split(PIECE)]
    return torch.cat(parts)[:count].view(values.shape)


def _refuse(func: Callable[..., Any], *_: object, **__: object) -> Any:
    raise Refused(
        f"the model calls torch's {func.__name__} itself, where a row's bits may depend on others"
    )


HANDLERS: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "addmm": _affine,
    **dict.fromkeys(("matmul", "__matmul__", "mm"), _product),
    **dict.fromkeys(("silu", "gelu", "sigmoid", "softplus", "elu", "mish", "rsqrt"), _in_vectors),
    **dict.fromkeys(
        ("bmm", "baddbmm", "einsum", "mv", "dot", "bilinear", "conv1d", "grouped_mm"), _refuse
    ),
    "scaled_dot_product_attention": _refuse,
}
"""The replacements of functions of torch, by their names."""
