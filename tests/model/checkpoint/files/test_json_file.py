"""JSON beside a model: what is no JSON is told by file, and endless numbers by their field."""

import json
from math import inf, nan
from pathlib import Path

import pytest

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused


def test_a_file_that_is_missing_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "config.json") is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": Infinite}', '{"a": 1, "b"}', "\xff", '{"a": Infinity']
)
def test_what_is_no_object_is_refused_by_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Refused, match=r"config\.json"):
        read_json(path)


def test_endless_numbers_are_as_transformers_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    words = 'it says "Infinity", [Infinity] and \\'
    path.write_text(json.dumps({"limits": [0.0, inf], "least": -inf, words: nan, "text": words}))
    assert read_json(path) == {
        "limits": [0.0, {"__float__": "Infinity"}],
        "least": {"__float__": "-Infinity"},
        words: {"__float__": "NaN"},
        "text": words,
    }
