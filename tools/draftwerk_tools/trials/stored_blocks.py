"""Digests of products with a GGUF's own blocks, of every type; the blocks are made here."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from draftwerk.model.checkpoint.stored_matrix import GROUP_KINDS, KINDS, StoredMatrix
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import BLOCK_INPUTS, PackedMatrix, file_bytes
from draftwerk_tools.trials.tiny_model import uniform

ROWS, COLUMNS, INPUTS = 11, 70, 768
HALVES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
}
"""Where a block's scale and minimum are, if it is not the first two bytes alone."""
NUMBERS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def stored_fingerprints(pool: Pool) -> dict[str, str]:
    """Return a digest for each type: of products with up to eleven rows, and of the values."""
    return {f"blocks of {kind}": _digest(kind, pool) for kind in KINDS}


def _digest(kind: str, pool: Pool) -> str:
    packed = PackedMatrix([StoredMatrix(kind, (COLUMNS, INPUTS), blocks(kind))], pool)
    inputs = uniform(7, ROWS * INPUTS, 3.0).view(ROWS, INPUTS).float()
    hashed = hashlib.sha256(packed.values().numpy().tobytes())
    for rows in (1, 2, 3, 4, 8, ROWS):
        hashed.update(packed.products(inputs[:rows].contiguous()).numpy().tobytes())
    return hashed.hexdigest()[:32]


def blocks(kind: str) -> NDArray[np.uint8]:
    """Return blocks [COLUMNS, bytes a row] with every quant, and scales of a model's size."""
    if kind in NUMBERS:
        values = uniform(KINDS[kind] << 20, COLUMNS * INPUTS, 0.1).to(NUMBERS[kind])
        return values.view(COLUMNS, -1).view(torch.uint8).numpy()
    size = file_bytes(kind, 256)
    count = COLUMNS * INPUTS // 256
    drawn = uniform(KINDS[kind] << 20, count * size, 1.0).float().numpy()
    found = ((drawn + 1) * 127.99).astype(np.uint8)
    if kind == "MXFP4":
        exponents = found.reshape(-1, size // 8)
        exponents[:, 0] = 117 + exponents[:, 0] % 8
        return found.reshape(COLUMNS, -1)
    each = found.reshape(-1, file_bytes(kind, BLOCK_INPUTS[kind]))
    if kind in GROUP_KINDS:
        scales = uniform((KINDS[kind] << 20) + (1 << 16), len(each), 0.01).float()
        each[:, :4] = scales.view(-1, 1).view(torch.uint8).numpy()
        return found.reshape(COLUMNS, -1)
    for number, at in enumerate(HALVES.get(kind, (0,))):
        scales = uniform((KINDS[kind] << 20) + (number + 1 << 16), len(each), 0.01)
        each[:, at : at + 2] = scales.float().numpy().astype(np.float16)[:, None].view(np.uint8)
    return found.reshape(COLUMNS, -1)
