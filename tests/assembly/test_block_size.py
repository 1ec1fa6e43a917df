"""Blocks are as large as the attention wants that a GPU will be served with."""

from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from draftwerk.assembly import block_size
from draftwerk.assembly.block_size import BLOCK_SIZE, FLASH_BLOCK_SIZE, block_size_of
from draftwerk.settings.engine_settings import EngineSettings

TWO, THREE = block_size.FLASH_ATTENTION_2, block_size.FLASH_ATTENTION_3


@pytest.mark.parametrize(
    ("installed", "fields", "expected"),
    [
        ((), {}, BLOCK_SIZE),
        ((TWO,), {}, FLASH_BLOCK_SIZE),
        ((TWO, THREE), {}, BLOCK_SIZE),
        ((TWO, THREE), {"attention": TWO}, FLASH_BLOCK_SIZE),
        ((TWO,), {"attention": "triton"}, BLOCK_SIZE),
        ((TWO,), {"exact": True}, BLOCK_SIZE),
        ((TWO,), {"kv_dtype": "fp8"}, BLOCK_SIZE),
        ((TWO,), {"dtype": "fp32"}, BLOCK_SIZE),
        ((TWO,), {"block_size": 32}, 32),
        ((TWO,), {"device": "cpu"}, BLOCK_SIZE),
    ],
)
def test_flash_attention_has_the_blocks_that_it_takes(
    installed: tuple[str, ...],
    fields: dict[str, Any],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None) if name in installed else None

    monkeypatch.setattr(block_size, "find_spec", find)
    assert block_size_of(EngineSettings(**{"device": "cuda", **fields})) == expected
