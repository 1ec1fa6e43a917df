"""The fused operations against their twins in torch."""

import pytest
import torch
from torch import Tensor

from draftwerk.model.gpu.ops import HeadNorms, Ops
from tests.model.gpu.support.device import DEVICE, HALF, random
from tests.support.pairwise import named, pairwise
from tests.support.torch_ops import TORCH_OPS

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.kernels.fused import triton_ops

DTYPES = [torch.float32, HALF]
TOLERANCES = {"atol": 2e-6, "rtol": 2e-6}
BLOCKS, PAGE = 5, 4


@pytest.fixture
def ours() -> Ops:
    return triton_ops()


def check_close(found: Tensor, expected: Tensor) -> None:
    """Within rounding: a half may fall to either side of a tie."""
    near = TOLERANCES if found.dtype == torch.float32 else {"atol": 2e-2, "rtol": 1e-2}
    torch.testing.assert_close(found, expected, **near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [64, 576])
@pytest.mark.parametrize("with_delta", [False, True])
def test_add_norm(ours: Ops, width: int, with_delta: bool, dtype: torch.dtype):
    residual, weight = random(1, 3, width).to(dtype), random(2, width).to(dtype)
    delta = random(3, 3, width).to(dtype) if with_delta else None
    theirs = residual.clone()
    expected = TORCH_OPS.add_norm(theirs, delta, weight, 1e-5)
    check_close(ours.add_norm(residual, delta, weight, 1e-5), expected)
    assert torch.equal(residual, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [48, 1536])
def test_silu_mul(ours: Ops, width: int, dtype: torch.dtype):
    gate_up = (random(4, 3, 2 * width) * 4).to(dtype)
    check_close(ours.silu_mul(gate_up), TORCH_OPS.silu_mul(gate_up))


@pairwise(
    shape=named((4, 2, 8), (9, 3, 64), (18, 1, 128)),
    norms={"plain": False, "head norms": True},
    dtype=named(*DTYPES),
)
def test_rotate_and_store(ours: Ops, shape: tuple[int, int, int], norms, dtype):
    """The last token is padding: its key and value must go nowhere."""
    heads, kv_heads, size = shape
    qkv = random(5, 4, (heads + 2 * kv_heads) * size).to(dtype)
    angles = random(6, 4, size // 2)
    rotation = angles.cos(), angles.sin()
    slots = torch.tensor([7, 0, 19, -1], dtype=torch.int32, device=DEVICE)
    weights = HeadNorms(random(7, size).to(dtype), random(8, size).to(dtype), 1e-6)
    results = []
    for ops in (ours, TORCH_OPS):
        pages = [random(9, BLOCKS, PAGE, kv_heads, size).to(dtype) for _ in range(2)]
        query = ops.rotate_and_store(qkv, rotation, slots, weights if norms else None, *pages)
        results.append((query, *pages))
    for found, expected in zip(*results, strict=True):
        check_close(found, expected)
    untouched = random(9, BLOCKS, PAGE, kv_heads, size).to(dtype).view(-1, kv_heads, size)
    written = [0, 7, 19]
    others = [slot for slot in range(BLOCKS * PAGE) if slot not in written]
    assert torch.equal(results[0][1].view(-1, kv_heads, size)[others], untouched[others])
    assert not torch.equal(results[0][1].view(-1, kv_heads, size)[written], untouched[written])
