"""Matrices in the blocks that a file holds them in, or in ones of the same values."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STORED = "stored"
"""The dtype of a model whose matrices are served as its file has them."""
GGUF_KINDS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "IQ4_NL": 20,
    "IQ4_XS": 23,
    "BF16": 30,
    "MXFP4": 39,
}
"""Types of a GGUF, by its numbers."""
GROUP_KINDS = {"G4_32": 1000, "G4_128": 1001, "G8_128": 1002, "F8_128": 1003}
"""Groups of 32 or 128 inputs with a float scale, into which other files' matrices are arranged."""
KINDS = GGUF_KINDS | GROUP_KINDS
"""Mirrors `Kind` in source/matrix/kinds.h."""


class StoredMatrix(NamedTuple):
    """Rows of a matrix in a GGUF type's own blocks, as they lie in a mapped file."""

    kind: str
    """The name of the type: Q4_0, Q4_K, …"""
    shape: tuple[int, int]
    """Rows, columns (inputs)."""
    data: NDArray[np.uint8]
    """[rows, bytes a row], a view of the mapped file; it may be read-only."""
    rows: NDArray[np.int64] | None = None
    """The source row of each output row where the order differs; None: as they lie."""

    @property
    def byte_count(self) -> int:
        """Bytes in the file."""
        return self.shape[0] * self.data.shape[1]
