"""Random matrices in the blocks of a type."""

import gguf
from torch import Tensor

from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from tests.support import stored_twin as twin

QUANTISED_HERE = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
"""What the gguf package can write; blocks of other types are random."""


def stored(matrix: Tensor, kind: str) -> StoredMatrix:
    """Return a matrix in a type's blocks: quantised, or random ones of about its size."""
    rows, columns = matrix.shape
    if kind in QUANTISED_HERE:
        data = gguf.quantize(matrix.numpy(), gguf.GGMLQuantizationType[kind])
        return StoredMatrix(kind, (rows, columns), data)
    data = twin.random_blocks(kind, rows, columns, seed=rows)
    deviation = twin.dequantise(kind, data).std()
    data = twin.random_blocks(kind, rows, columns, seed=rows, size=float(matrix.std() / deviation))
    return StoredMatrix(kind, (rows, columns), data)
