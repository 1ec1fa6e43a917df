"""Blocks of the fingerprint are the same on every machine, and of every type."""

import numpy as np
import pytest

from draftwerk.model.checkpoint.stored_matrix import KINDS
from draftwerk.model.native.stored import file_bytes
from draftwerk_tools.trials.stored_blocks import COLUMNS, INPUTS, NUMBERS, blocks


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_have_the_size_of_their_type_and_always_the_same_bytes(kind: str) -> None:
    found = blocks(kind)
    width = INPUTS * NUMBERS[kind].itemsize if kind in NUMBERS else file_bytes(kind, INPUTS)
    assert found.shape == (COLUMNS, width)
    assert np.array_equal(found, blocks(kind)) and len(np.unique(found)) > 100
