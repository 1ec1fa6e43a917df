"""Several models under mixed load, within memory that holds two of them, and one that is killed."""

from pathlib import Path

import pytest

from validation.mixed_models import experiment, parser


@pytest.mark.grid
async def test_three_models_answer_all_within_memory_for_two_with_the_texts_of_each_alone(
    tmp_path: Path,
) -> None:
    found = await experiment(parser().parse_args(["--tokens", "12", "--requests", "12"]), tmp_path)
    assert found["requests"] == 12
    assert found["refusals"] > 0, "none had to come back: nothing was short"
    assert sum(found["loads"].values()) > 3, "no model was ever unloaded and loaded again"
