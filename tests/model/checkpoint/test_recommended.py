"""What a model recommends is read where it stands, and refused by name where it cannot be."""

import json
from pathlib import Path

import pytest

from draftwerk.model.checkpoint.hub import DEFAULT_NAME
from draftwerk.model.checkpoint.keys.generation_keys import GENERATION
from draftwerk.model.checkpoint.recommended import recommended, suppressed
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.parameters.defaults import SamplingDefaults


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


def test_one_that_does_not_sample_is_greedy(tmp_path: Path) -> None:
    written(tmp_path, do_sample=False, temperature=0.6)
    assert recommended(tmp_path)[0].temperature == 0.0


def test_barred_tokens_are_read_and_bounded(tmp_path: Path) -> None:
    written(tmp_path, suppress_tokens=[7, 3], bad_words_ids=[[5]])
    assert suppressed(tmp_path, 8) == (3, 5, 7)
    with pytest.raises(Refused, match=r"not all under 7.*--generation-config none"):
        suppressed(tmp_path, 7)
    with pytest.raises(Refused, match="bad_words_ids of several tokens"):
        suppressed(written(tmp_path, bad_words_ids=[[5, 6]]), 8)
    with pytest.raises(Refused, match="bad_words_ids or suppress_tokens"):
        suppressed(written(tmp_path, suppress_tokens="none"), 8)


OFF = {"no_repeat_ngram_size": 0, "num_beams": 1, "typical_p": 1.0, "min_length": 0}
ON = {"no_repeat_ngram_size": 3, "num_beams": 4, "typical_p": 0.9, "min_length": 5, "sharp": True}


@pytest.mark.parametrize("field", ON)
def test_what_would_change_a_text_otherwise_is_refused_by_its_name(
    tmp_path: Path, field: str
) -> None:
    recommended(written(tmp_path, **OFF, transformers_version="5", max_new_tokens=3))
    with pytest.raises(Refused, match=rf"{field} .*not supported.*--generation-config none"):
        recommended(written(tmp_path, **{field: ON[field]}))


def test_every_field_of_transformers_has_a_row() -> None:
    from transformers import GenerationConfig

    fields = GenerationConfig().to_dict() | dict.fromkeys(vars(GenerationConfig()))
    known = GENERATION.read | GENERATION.without_effect.keys() | GENERATION.only.keys()
    assert {name for name in fields if not name.startswith("_")} <= known
    recommended_fields = {name: value for name, value in fields.items() if value is not None}
    assert list(GENERATION.unknown(recommended_fields)) == []
