"""The matrix of validation/matrix.py on a tiny model, in every weight format that is exact."""

from pathlib import Path

import pytest

from draftwerk.model.build import ModelOptions
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.draft_head.head import save
from tests.support.draft_heads import idle_head
from tests.support.tiny_models import VOCAB, save_tiny
from tests.support.toy import ToyText
from validation.matrix import BLOCK_SIZE, Matrix, check, totals


class Words(ToyText):
    """The tiny model's vocabulary as words."""

    vocab_size = VOCAB


def options(directory: Path, dtype: str) -> ModelOptions:
    """Return how the model in a directory is run: with a draft head, made up."""
    weights = load(str(directory), None).weights
    path = directory / "head" / "head.safetensors"
    path.parent.mkdir()
    save(idle_head(weights), weights, path)
    return ModelOptions(
        source=str(directory),
        dtype=dtype,
        draft_head=str(path),
        block_count=256,
        block_size=BLOCK_SIZE,
    )


async def test_every_distribution_gives_one_text_in_every_way_of_drafting(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", seed=3)
    totals(await check(Matrix(options(tmp_path, "fp32"), Words(), (2,))))


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
async def test_the_fast_formats_are_exact_too(tmp_path: Path, dtype: str) -> None:
    save_tiny(tmp_path, "qwen3", seed=5)
    matrix = Matrix(options(tmp_path, dtype), Words(), (2,))
    totals(await check(matrix, ("greedy", "everything")))
