"""Torch's functions give a row the same bits beside any others, or are refused by name."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, scaled_dot_product_attention, silu, softplus

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.row_tiles import HANDLERS, PIECE, RowTiles

WEIGHT, BIAS = torch.randn(37, 45), torch.randn(37)
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda rows: linear(rows, WEIGHT, BIAS),
    "matmul": lambda rows: rows @ WEIGHT.T,
    "mm": lambda rows: torch.mm(rows, WEIGHT.T),
    "addmm": lambda rows: torch.addmm(BIAS, rows, WEIGHT.T),
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": lambda rows: gelu(rows, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "its method": lambda rows: rows.sigmoid(),
    "softplus": softplus,
    "rsqrt": lambda rows: torch.rsqrt(rows.abs() + 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_does_not_depend_on_others(name: str, dtype: torch.dtype, monkeypatch):
    for each in ("WEIGHT", "BIAS"):
        monkeypatch.setitem(globals(), each, globals()[each].to(dtype))
    rows = (3 * torch.randn(PIECE // 45 + 50, 45)).to(dtype)
    with RowTiles():
        whole = FUNCTIONS[name](rows)
        for start, stop in ((0, 1), (5, 6), (7, 39), (31, 74), (0, len(rows))):
            assert torch.equal(FUNCTIONS[name](rows[start:stop]), whole[start:stop])
    torch.testing.assert_close(whole, FUNCTIONS[name](rows))


def test_products_of_one_term_are_left_as_they_are():
    first, second = torch.randn(1, 4, 1), torch.randn(1, 1, 9)
    with RowTiles():
        assert torch.equal(first @ second, first * second)


@pytest.mark.parametrize(
    "product",
    [
        lambda heads: heads @ heads.mT,
        lambda heads: torch.bmm(heads, heads.mT),
        lambda heads: torch.einsum("rij,rkj->rik", heads, heads),
        lambda heads: scaled_dot_product_attention(heads, heads, heads),
    ],
    ids=["matmul", "bmm", "einsum", "attention"],
)
def test_products_of_rows_with_each_other_are_refused(product: Callable[[Tensor], Tensor]):
    with RowTiles(), pytest.raises(Refused, match=r"the model calls torch's .* itself"):
        product(torch.randn(2, 5, 3))


def test_every_function_that_is_named_is_one_of_torchs():
    places = (torch, torch.Tensor, torch.nn.functional)
    assert all(any(hasattr(place, name) for place in places) for name in HANDLERS)
