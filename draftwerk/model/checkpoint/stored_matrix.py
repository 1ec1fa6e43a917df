"""Matrices in the blocks that a GGUF file holds them in."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class StoredMatrix(NamedTuple):
    """Rows of a matrix in a GGUF type's own blocks, as they lie in a mapped file."""

    kind: str
    """The GGUF's name of the type: Q4_0, Q4_K, …"""
    shape: tuple[int, int]
    """Rows, columns (inputs)."""
    data: NDArray[np.uint8]
    """[rows, bytes a row], a view of the mapped file; it may be read-only."""
    rows: NDArray[np.int64] | None = None
    """The source row of each output row where the order differs; None: as they lie."""
