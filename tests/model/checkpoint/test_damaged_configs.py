"""Fields of JSON files that hold something else are refused, or read; nothing else happens."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from draftwerk.model.checkpoint.hf_config import read_config, read_supported
from draftwerk.model.checkpoint.inventory import inventory
from draftwerk.model.checkpoint.quantised.scheme import scheme_of
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import POOLING_FIELD, vector_form
from draftwerk.model.text.tokenizer import TextTokenizer
from tests.support.quantised_checkpoints import FORMS
from tests.support.small_tokenizers import byte_level, saved
from tests.support.tiny_models import FAMILIES, tiny_model

WRONG: list[Any] = [None, True, "x", -1, 1, 0.5, 2**70, [], [None], [["x"]], {}, {"x": "y"}]
TEMPLATE = "{{ messages[0].content }}"


def damaged(whole: dict[str, Any], rng: Random) -> Iterator[dict[str, Any]]:
    """Yield an object with one field changed, at any depth; each field in a few ways."""
    for name, value in whole.items():
        for wrong in rng.sample(WRONG, 3):
            yield {**whole, name: wrong}
        if isinstance(value, dict):
            for changed in damaged(value, rng):
                yield {**whole, name: changed}
        elif isinstance(value, list) and value:
            for wrong in rng.sample(WRONG, 3):
                yield {**whole, name: [wrong, *value[1:]]}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config(family: str, tmp_path: Path) -> None:
    whole = tiny_model(family).config.to_dict() | {"architectures": [FAMILIES[family].__name__]}
    path = tmp_path / "config.json"
    refused = 0
    for config in damaged(whole, Random(family)):
        path.write_text(json.dumps(config))
        try:
            read_config(tmp_path)
            inventory(read_supported(tmp_path))
        except Refused as error:
            assert str(error), config
            refused += 1
    assert refused


@pytest.mark.parametrize("form", FORMS)
def test_a_scheme_of_quantised_weights(form: str) -> None:
    said, _ = FORMS[form]
    refused = 0
    for seed in range(8):
        for config in damaged(said, Random(seed)):
            try:
                scheme_of({"quantization_config": config})
            except Refused:
                refused += 1
    assert refused


@pytest.mark.parametrize("value", WRONG)
def test_a_pooling_that_is_none(value: Any, tmp_path: Path) -> None:
    found = vector_form(tmp_path, {"hidden_size": 8, POOLING_FIELD: value})
    assert found.pooling in ("last", "mean")


def test_what_is_said_of_a_tokenizer(tmp_path: Path) -> None:
    saved(byte_level(), tmp_path, TEMPLATE)
    path = tmp_path / "tokenizer_config.json"
    token = {"content": "<s>", "special": True, "lstrip": False}
    whole = {**json.loads(path.read_text()), "added_tokens_decoder": {"0": token}}
    refused = 0
    for config in damaged(whole, Random(1)):
        path.write_text(json.dumps(config))
        try:
            TextTokenizer(tmp_path)
        except Refused:
            refused += 1
    assert refused
