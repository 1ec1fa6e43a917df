"""What a model recommends is read where it stands, and refused by name where it cannot be."""

import json
from pathlib import Path

import pytest

from draftwerk.model.checkpoint.hub import DEFAULT_NAME
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.sampling.defaults import SamplingDefaults


def written(directory: Path, **fields: object) -> Path:
    (directory / "generation_config.json").write_text(json.dumps(fields))
    return directory


def test_a_generation_config_is_obeyed_and_named(tmp_path: Path) -> None:
    written(tmp_path, do_sample=True, eos_token_id=2, temperature=0.6, top_p=0.9, top_k=None)
    found = SamplingDefaults(temperature=0.6, top_p=0.9)
    assert recommended(tmp_path) == (found, "generation_config.json")
    assert recommended(tmp_path, DEFAULT_NAME) == (found, "generation_config.json")


def test_a_model_that_says_nothing_has_nothing_but_the_built_in_one_its_card(
    tmp_path: Path,
) -> None:
    written(tmp_path, eos_token_id=2)
    assert recommended(tmp_path) == (SamplingDefaults(), "")
    card = SamplingDefaults(temperature=0.2, top_p=0.9)
    assert recommended(tmp_path, DEFAULT_NAME) == (card, "its model card")


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", 9), ("top_p", "high"), ("repetition_penalty", 0)]
)
def test_a_value_that_no_request_could_have_is_refused_with_a_remedy(
    tmp_path: Path, field: str, value: object
) -> None:
    with pytest.raises(Refused, match=rf"{field}.*--generation-config none"):
        recommended(written(tmp_path, **{field: value}))
