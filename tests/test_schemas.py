"""Every finished text belongs to its schema, and speculation does not change it: a sample."""

from pathlib import Path

import pytest

from tests.model.tiny import save_tiny_with_text
from tests.schemas import run


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(path)
    return path


@pytest.mark.parametrize("seed", [1, 2])
async def test_drafted_texts_belong_to_their_schemas_and_are_the_plain_ones(
    directory: Path, seed: int
) -> None:
    outcome = await run(str(directory), range(60), seed, tokens=400)
    assert outcome.count == 60
    outcome.check()
