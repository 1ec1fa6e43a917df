"""Matrices that a file has quantised already, on their way to the kernels."""

import weakref
from collections.abc import Sequence
from ctypes import Array, c_double, c_int32

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.stored_matrix import GROUP_KINDS, KINDS, StoredMatrix
from draftwerk.model.checkpoint.weights import WeightMatrix
from draftwerk.model.native.calls.structs import StoredPart
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool

GROUP = 32
"""Inputs that are rounded together."""
BLOCK_INPUTS = {
    **dict.fromkeys(KINDS, GROUP),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"), 256),
    **dict.fromkeys(("F32", "F16", "BF16"), 1),
    **{kind: int(kind.split("_")[1]) for kind in GROUP_KINDS},
}
"""How many a block of each type has; a number is a block."""


def file_bytes(kind: str, inputs: int) -> int:
    """Return the bytes of a row of so many inputs in a file."""
    return library().stored_file_bytes(KINDS[kind], inputs)


def packed_size(parts: Sequence[StoredMatrix]) -> int:
    """Return the bytes that a matrix of parts takes in memory."""
    size = library().stored_matrix_bytes
    return sum(size(KINDS[part.kind], *part.shape) for part in parts)


def parts_of(parts: Sequence[StoredMatrix]) -> Array[StoredPart]:
    """Return what the kernels read of a matrix; the parts must outlive the call."""
    arguments = (StoredPart * len(parts))()
    for to, part in zip(arguments, parts, strict=True):
        _check(part)
        to.data, to.row_bytes = part.data.ctypes.data, part.data.strides[0]
        to.rows = None if part.rows is None else part.rows.ctypes.data
        to.kind, to.count = KINDS[part.kind], part.shape[0]
    return arguments


def halved(parts: Sequence[StoredMatrix]) -> tuple[StoredMatrix, ...]:
    """Return gate and up as two parts, also where the file has one matrix of both."""
    if len(parts) != 1:
        return tuple(parts)
    (both,) = parts
    rows, columns = both.shape
    order = np.arange(rows) if both.rows is None else both.rows
    shape = (rows // 2, columns)
    return tuple(both._replace(shape=shape, rows=half.copy()) for half in np.split(order, 2))


def dequantised(matrix: StoredMatrix) -> Tensor:
    """Return the float32 values that the format defines, rows in the order of `matrix.rows`."""
    if matrix.kind not in KINDS:  # numbers of 16 bits and more
        return plain_values(matrix)
    rows, columns = matrix.shape
    data = matrix.data if matrix.rows is None else matrix.data[matrix.rows]
    values = torch.empty(rows, columns)
    library().dequantise_rows(
        KINDS[matrix.kind],
        data.ctypes.data,
        data.strides[0],
        rows,
        columns,
        values.data_ptr(),
    )
    return values


def rows_of(matrix: WeightMatrix, rows: Tensor) -> Tensor:
    """Return these rows of a matrix; those of parts as float32."""
    if not isinstance(matrix, tuple):  # what a device holds is indexed there
        return matrix[rows.long().to(matrix.device)]
    first, wanted = 0, rows.long().numpy()
    found = torch.empty(len(rows), matrix[0].shape[1])
    for part in matrix:
        inside = np.flatnonzero((wanted >= first) & (wanted < first + part.shape[0]))
        at = wanted[inside] - first
        at = at if part.rows is None else part.rows[at]
        some = part._replace(shape=(len(at), part.shape[1]), rows=at)
        found[torch.from_numpy(inside)] = dequantised(some)
        first += part.shape[0]
    return found


def quantised(matrix: Tensor, kind: str, pool: Pool) -> StoredMatrix:
    """Return a matrix rounded to Q8_0 or IQ4_NL; where its last block has no inputs are zeros."""
    source = matrix.contiguous()
    if source.dtype not in (torch.float32, torch.bfloat16):
        source = source.float()
    found = unread(tuple(matrix.shape), kind)
    pool.library.quantise_rows(
        pool.handle,
        KINDS[kind],
        source.data_ptr(),
        source.dtype == torch.bfloat16,
        *source.shape,
        found.data.ctypes.data,
    )
    return found


def unread(shape: tuple[int, ...], kind: str) -> StoredMatrix:
    """Return a matrix of that shape, inputs in whole blocks of 32, whose bytes are any."""
    rows, inputs = shape[0], -(-shape[1] // GROUP) * GROUP
    return StoredMatrix(kind, (rows, inputs), np.empty((rows, file_bytes(kind, inputs)), np.uint8))


class PackedMatrix:
    """A matrix of parts in the kernels' panels."""

    def __init__(self, parts: Sequence[StoredMatrix], pool: Pool) -> None:
        self.shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
        self._pool = pool
        self._library = pool.library
        self._handle: int = self._library.stored_create(
            pool.handle, parts_of(parts), len(parts), self.shape[1]
        )
        weakref.finalize(self, self._library.stored_destroy, self._handle)

    def products(self, inputs: Tensor) -> Tensor:
        """Return float32 inputs [n, k] times the rows [m, k], as [n, m]."""
        found = torch.empty(len(inputs), self.shape[0])
        self._library.stored_multiply(
            self._handle, inputs.data_ptr(), len(inputs), found.data_ptr()
        )
        return found

    def values(self) -> Tensor:
        """Return the float32 values that the panels hold."""
        found = torch.empty(self.shape)
        self._library.stored_unpack(self._handle, 0, self.shape[0], found.data_ptr())
        return found

    def times(self, rows: Sequence[int]) -> list[float]:
        """Return a thread's seconds for reading all once, then for the products of so many rows."""
        seconds = (c_double * (1 + len(rows)))()
        self._library.stored_time(self._handle, (c_int32 * len(rows))(*rows), len(rows), seconds)
        return list(seconds)


def _check(part: StoredMatrix) -> None:
    rows, columns = part.shape
    if part.kind not in KINDS:
        raise ValueError(f"{part.kind} is none of {', '.join(KINDS)}")
    if part.data.dtype != np.uint8 or part.data.ndim != 2 or part.data.strides[1] != 1:
        raise ValueError(f"blocks of {part.kind} must be bytes, [rows, bytes a row]")
    if columns % BLOCK_INPUTS[part.kind]:
        raise ValueError(f"{part.kind}: {columns} inputs are no whole blocks")
    least = file_bytes(part.kind, columns)
    if part.data.shape[1] < least:
        raise ValueError(f"{part.kind}: rows of {part.data.shape[1]} bytes, not {least}")
    if part.rows is not None and (part.rows.dtype != np.int64 or len(part.rows) != rows):
        raise ValueError(f"{part.kind}: {rows} rows have another number of sources")
    if part.rows is None and len(part.data) != rows:
        raise ValueError(f"{part.kind}: {len(part.data)} rows, not {rows}")
