"""The matrix of tests/matrix.py on a tiny model, in every weight format that is exact."""

from pathlib import Path

import pytest

from model.build import ModelOptions
from tests.matrix import BLOCK_SIZE, Matrix, check, totals
from tests.model.tiny import VOCAB, save_tiny
from tests.toy import ToyText


class Words(ToyText):
    """The tiny model's vocabulary as words."""

    vocab_size = VOCAB


async def test_every_law_gives_one_text_in_every_way_of_drafting(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", seed=3)
    options = ModelOptions(
        source=str(tmp_path), dtype="fp32", block_count=256, block_size=BLOCK_SIZE
    )
    totals(await check(Matrix(options, Words(), (2,))))


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
async def test_the_fast_formats_are_exact_too(tmp_path: Path, dtype: str) -> None:
    save_tiny(tmp_path, "qwen3", seed=5)
    options = ModelOptions(
        source=str(tmp_path), dtype=dtype, block_count=256, block_size=BLOCK_SIZE
    )
    totals(await check(Matrix(options, Words(), (2,)), ("greedy", "everything")))
