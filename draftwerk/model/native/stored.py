"""Matrices that a file has quantised already, on their way to the kernels."""

from collections.abc import Sequence
from ctypes import Array

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.stored_matrix import KINDS, STORED, StoredMatrix
from draftwerk.model.native.library import StoredPart, library
from draftwerk.model.native.pool import Pool

__all__ = ["KINDS", "STORED", "dequantised", "halved", "packed_size", "parts_of", "products"]


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


def products(parts: Sequence[StoredMatrix], inputs: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
    """Return inputs [n, k] times the parts' rows, and the values that unpacking gives back."""
    rows, columns = sum(part.shape[0] for part in parts), parts[0].shape[1]
    found, values = torch.empty(len(inputs), rows), torch.empty(rows, columns)
    pool.library.multiply_parts(
        pool.handle,
        parts_of(parts),
        len(parts),
        columns,
        inputs.data_ptr(),
        len(inputs),
        found.data_ptr(),
        values.data_ptr(),
    )
    return found, values


def _check(part: StoredMatrix) -> None:
    rows, columns = part.shape
    if part.kind not in KINDS:
        raise ValueError(f"{part.kind} is none of {', '.join(KINDS)}")
    if part.data.dtype != np.uint8 or part.data.ndim != 2 or part.data.strides[1] != 1:
        raise ValueError(f"blocks of {part.kind} must be bytes, [rows, bytes a row]")
    if part.rows is not None and (part.rows.dtype != np.int64 or len(part.rows) != rows):
        raise ValueError(f"{part.kind}: {rows} rows have another number of sources")
    if part.rows is None and len(part.data) != rows:
        raise ValueError(f"{part.kind}: {len(part.data)} rows, not {rows}")
    if columns % 32:
        raise ValueError(f"{part.kind}: {columns} inputs are no whole blocks of 32")
