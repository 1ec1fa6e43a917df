"""Products with a GGUF's own blocks: bits of the rule, on every instruction set, in any company."""

from functools import cache

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from draftwerk.model.checkpoint.stored_matrix import GGUF_KINDS, GROUP_KINDS, KINDS, StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import PackedMatrix, dequantised, quantised
from draftwerk_tools.quantising.quantised_blocks import quantised as writer
from tests.support import stored_twin as twin
from tests.support.instruction_sets import each_isa

WIDTHS = {32: (576, 896, 32), 128: (128, 896), 256: (256, 768)}
"""By inputs of a block."""


@cache
def pool_of(isa: str) -> Pool:
    try:
        return Pool(2, isa)
    except (NativeUnavailable, Refused) as error:
        pytest.skip(str(error))


ROWS_MANY = 40
"""More than AMX takes at once, where the processor has it."""


def matrix(kind: str, rows: int, inputs: int, **changes) -> StoredMatrix:
    return StoredMatrix(kind, (rows, inputs), twin.random_blocks(kind, rows, inputs, **changes))


def activations(rows: int, inputs: int, seed: int = 1) -> torch.Tensor:
    """Return rows of ordinary size, one of zeros in parts, one of the largest bytes."""
    found = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))
    found[rows // 2, : inputs // 2] = 0
    found[-1] = found[-1].sign()
    return found


@cache
def case(kind: str, inputs: int) -> tuple[StoredMatrix, torch.Tensor, NDArray[np.float32]]:
    """Return a matrix, activations, and their product by the rule: once for all kernels."""
    of, x = matrix(kind, 53, inputs), activations(ROWS_MANY, inputs)
    return of, x, twin.product(kind, of.data, x.numpy())


@cache
def extreme(kind: str, fill: int) -> tuple[StoredMatrix, torch.Tensor, NDArray[np.float32]]:
    """Return a matrix of equal quants, activations of one size, and their product by the rule."""
    of, x = matrix(kind, 16, 512, fill=fill), torch.ones(2, 512)
    x[1] = -1
    return of, x, twin.product(kind, of.data, x.numpy())


def products(parts: list[StoredMatrix], x: torch.Tensor, pool: Pool) -> tuple[torch.Tensor, ...]:
    packed = PackedMatrix(parts, pool)
    return packed.products(x), packed.values()


def reference(kind: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    if kind in GROUP_KINDS:
        return twin.dequantise(kind, blocks)
    return gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_numbers_are_gguf(kind: str):
    assert GGUF_KINDS[kind] == gguf.GGMLQuantizationType[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_format(kind: str):
    for inputs in WIDTHS[twin.INPUTS[kind]]:
        blocks = twin.random_blocks(kind, 50, inputs)
        expected = reference(kind, blocks)
        assert np.array_equal(twin.dequantise(kind, blocks), expected)
        found = dequantised(StoredMatrix(kind, (50, inputs), blocks))
        assert np.array_equal(found.numpy().view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("isa", each_isa())
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_the_rule(kind: str, isa: str):
    pool = pool_of(isa)
    for inputs in WIDTHS[twin.INPUTS[kind]]:
        of, x, expected = case(kind, inputs)
        found, values = products([of], x, pool)
        assert np.array_equal(found.numpy().view(np.int32), expected.view(np.int32))
        assert np.array_equal(values.numpy(), reference(kind, of.data))


@pytest.mark.parametrize("isa", each_isa())
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_quants(kind: str, isa: str):
    """Sums of sixteen bits hold the largest products that there are."""
    pool = pool_of(isa)
    for fill in (0x00, 0x7F, 0x80, 0xFF, 0x0F, 0xF0, 0x3F):
        of, x, expected = extreme(kind, fill)
        found, _ = products([of], x, pool)
        assert np.array_equal(found.numpy().view(np.int32), expected.view(np.int32)), fill


@pytest.mark.parametrize("isa", each_isa())
@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_a_row_do_not_depend_on_others(kind: str, isa: str):
    pool = pool_of(isa)
    of, x = matrix(kind, 48, 512), activations(ROWS_MANY, 512)
    together, _ = products([of], x, pool)
    for rows in (*range(1, 18), 25, 31, 32, 33):
        alone, _ = products([of], x[:rows], pool)
        assert torch.equal(alone, together[:rows]), rows


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_close_to_exact(kind: str, pool: Pool):
    of, x = matrix(kind, 16, 8192), activations(3, 8192)
    found, values = products([of], x, pool)
    bytes_, scales = twin.rounded(x.numpy())
    inputs = (bytes_ * scales[..., None].astype(np.float64)).reshape(3, -1)
    weights = values.numpy().astype(np.float64)
    size = np.abs(inputs) @ np.abs(weights).T
    assert (np.abs(found.numpy() - inputs @ weights.T) <= 1e-6 * size).all()


def test_parts_of_different_types(pool: Pool):
    """Parts stand one above the other, also where they end within a tile or a panel."""
    parts = [matrix("Q4_K", 40, 256), matrix("Q6_K", 24, 256), matrix("Q8_0", 97, 256)]
    x = activations(5, 256)
    found, values = products(parts, x, pool)
    expected = [products([part], x, pool) for part in parts]
    assert torch.equal(found, torch.cat([one for one, _ in expected], dim=1))
    assert torch.equal(values, torch.cat([one for _, one in expected]))


def test_rows_in_another_order(pool: Pool):
    of = matrix("Q5_K", 48, 256)
    order = np.random.default_rng(3).permutation(48)
    x = activations(2, 256)
    found, values = products([of._replace(rows=order)], x, pool)
    plain, plain_values = products([of], x, pool)
    assert torch.equal(found, plain[:, order])
    assert torch.equal(values, plain_values[order])
    assert torch.equal(dequantised(of._replace(rows=order)), plain_values[order])


@pytest.mark.parametrize("isa", each_isa())
@pytest.mark.parametrize("kind", ["Q8_0", "IQ4_NL"])
def test_weights_are_rounded_to_the_same_blocks_everywhere(kind: str, isa: str, pool: Pool):
    weights = activations(9, 100)
    found = quantised(weights, kind, pool_of(isa))
    assert found.shape == (9, 128)
    assert np.array_equal(found.data, quantised(weights, kind, pool).data)
    halves = weights.bfloat16()
    rounded = quantised(halves.float(), kind, pool)
    assert np.array_equal(quantised(halves, kind, pool_of(isa)).data, rounded.data)


@pytest.mark.parametrize("kind", ["Q8_0", "IQ4_NL"])
def test_rounded_weights_are_as_near_as_the_files_writer_has_them(kind: str, pool: Pool):
    weights = activations(40, 512)
    values = dequantised(quantised(weights, kind, pool))
    error = ((values - weights) ** 2).sum()
    written = writer(weights.numpy(), kind)
    by_writer = torch.from_numpy(reference(kind, written))
    assert error <= 1.01 * ((by_writer - weights) ** 2).sum()
    again = quantised(by_writer, kind, pool).data.reshape(-1, written.shape[1])
    assert (again == written).mean() > 0.98  # of zeros only the scale counts
    assert not values[20, :256].any()


def test_refuses_what_is_no_such_matrix(pool: Pool):
    of = matrix("Q4_0", 16, 64)
    for wrong, says in (
        (of._replace(kind="IQ1_S"), "IQ1_S is none of"),
        (of._replace(shape=(17, 64)), "16 rows, not 17"),
        (of._replace(data=of.data.astype(np.int32)), "must be bytes"),
        (of._replace(rows=np.arange(3)), "another number of sources"),
        (of._replace(shape=(16, 65)), "no whole blocks"),
        (of._replace(shape=(16, 96)), "rows of 36 bytes, not 54"),
    ):
        with pytest.raises(ValueError, match=says):
            products([wrong], torch.zeros(1, 64), pool)
