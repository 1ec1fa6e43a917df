"""The safetensors format: an 8-byte header length, a JSON header, the tensors' bytes."""

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Where the bytes begin, so that mapped tensors are aligned for any vector load."""


def write_bf16(
    path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[NDArray[np.float32]]
) -> None:
    """Write float32 tensors, given in the order of `shapes`, rounded to bf16, one at a time."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = msgspec.json.encode(header)
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for (name, shape), values in zip(shapes.items(), tensors, strict=True):
            if values.shape != shape:
                raise ValueError(f"{name}: {values.shape} is not {shape}")
            file.write(bf16_bits(values).tobytes())


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the upper halves of the floats, rounded to the nearest, ties to even; no NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)
