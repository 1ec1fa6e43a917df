"""Special tokens, in the files of different years."""

import json
from pathlib import Path

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import (
    listed_tokens,
    named_tokens,
    read_tokenizer_config,
)


def written(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_older_files_list_added_tokens_and_which_are_special(tmp_path: Path) -> None:
    folder = written(
        tmp_path, special_tokens_map={"eos_token": "<e>"}, added_tokens={"<e>": 7, "<x>": 8}
    )
    tokens = listed_tokens(read_tokenizer_config(folder))
    assert {index: (token.content, token.special) for index, token in tokens.items()} == {
        7: ("<e>", True),
        8: ("<x>", False),
    }
    assert not tokens[7].normalized and tokens[8].normalized


def test_a_newer_file_goes_first(tmp_path: Path) -> None:
    listed = {"added_tokens_decoder": {"3": {"content": "<n>"}}}
    folder = written(tmp_path, tokenizer_config=listed, added_tokens={"<e>": 7})
    assert [*listed_tokens(read_tokenizer_config(folder))] == [3]


def test_what_is_no_token_is_refused() -> None:
    with pytest.raises(Refused, match="added_tokens_decoder"):
        listed_tokens({"added_tokens_decoder": {"a": {"content": 1}}})


def test_names_are_in_the_order_of_transformers() -> None:
    config = {
        "additional_special_tokens": ["<x>"],
        "eos_token": {"content": "<e>"},
        "bos_token": "<b>",
        "add_bos_token": True,
        "pad_token": None,
    }
    assert [*named_tokens(config)] == ["<b>", "<e>", "<x>"]
