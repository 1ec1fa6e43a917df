"""Copies between blocks and slots do what the plain ones in `model.reference.kv_pages` do."""

import re
from importlib import resources

import pytest
import torch

from draftwerk.model.native import kv_pages
from draftwerk.model.native.native_shape import KV_CODES
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference import kv_pages as plain
from tests.model.native.models import random_pages, tiny_config

CONFIG = tiny_config()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_and_slots(pool: Pool, dtype: torch.dtype) -> None:
    ours, theirs = (random_pages(CONFIG, dtype, 8, 4) for _ in range(2))
    blocks = ((0, 5), (5, 0), (3, 7))
    slots = [(1, 2), (2, 3), (3, 1), (31, 0)]
    kv_pages.copy_blocks(ours, blocks)
    plain.copy_blocks(theirs, blocks)
    kv_pages.move_slots(ours, slots)
    plain.move_slots(theirs, slots)
    assert torch.equal(ours.keys, theirs.keys)
    assert torch.equal(ours.values, theirs.values)


def test_nothing_to_copy_and_nowhere_to_copy_to(pool: Pool) -> None:
    pages = random_pages(CONFIG, torch.float32, 8, 4)
    kv_pages.copy_blocks(pages, ())
    with pytest.raises(ValueError, match="outside"):
        kv_pages.copy_blocks(pages, ((0, 8),))
    with pytest.raises(ValueError, match="outside"):
        kv_pages.move_slots(pages, [(-1, 0)])


def test_codes_of_formats_are_rows_of_the_kernels() -> None:
    table = resources.files("draftwerk") / "model/native/source/attention/kv_formats.cpp"
    found = re.search(r"ROWS\[\].* = \{([^}]*)\}", table.read_text())
    assert found is not None
    kernels = found[1].split(", ")
    assert [f"{name}_kv" for name in KV_CODES] == kernels
    assert [*KV_CODES.values()] == [*range(len(kernels))]
