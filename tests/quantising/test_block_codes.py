"""Quants put into blocks, read back as gguf's library reads them."""

import numpy as np
import pytest

from draftwerk_tools.quantising.block_codes import (
    CODES,
    scales_and_offsets,
    values_of,
    with_quants,
)
from draftwerk_tools.quantising.quantised_blocks import quantised


@pytest.mark.parametrize("kind", CODES)
def test_quants_stand_for_their_levels(kind: str):
    rng = np.random.default_rng(0)
    packed = quantised(rng.standard_normal((3, 512)).astype(np.float32), kind)
    levels = np.array(CODES[kind].levels)
    assert (np.diff(levels) > 0).all()
    quants = rng.integers(0, len(levels), (3, 512))
    scales, offsets = scales_and_offsets(packed, kind)
    found = values_of(with_quants(packed, kind, quants), kind)
    assert np.allclose(found, levels[quants] * scales + offsets, rtol=1e-5, atol=1e-6)
    assert len(np.unique(found[0, :32])) > 1
    assert not np.shares_memory(with_quants(packed, kind, quants), packed)
