"""Files of prompts, in the forms of those who publish them."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwerk_tools.loadtest.workloads.prompt_files import (
    read_mooncake,
    read_questions,
    read_sharegpt,
)


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    return path


def test_lines_have_turns_or_a_prompt(tmp_path: Path) -> None:
    rows = {"turns": ["a", "b"], "category": "c"}, {"prompt": "d", "timestamp": 1.5}
    first, second = read_questions(lines(tmp_path / "q", *rows))
    assert (first.turns, first.category) == (("a", "b"), "c")
    assert (second.turns, second.at_s) == (("d",), 1.5)
    with pytest.raises(ValueError, match="neither `turns` nor `prompt`"):
        read_questions(lines(tmp_path / "q", {"category": "c"}))


def test_of_a_talk_the_humans_turns_are_sent(tmp_path: Path) -> None:
    talk = [("human", "a"), ("gpt", "x" * 40), ("human", "b"), ("gpt", "y")]
    talks = [{"conversations": [{"from": who, "value": said} for who, said in talk]}]
    path = tmp_path / "talks"
    path.write_text(json.dumps([*talks, {"conversations": []}]), encoding="utf-8")
    (prompt,) = read_sharegpt(path)
    assert (prompt.turns, prompt.output_tokens) == (("a", "b"), 10)


def test_equal_hashes_are_equal_texts(tmp_path: Path) -> None:
    row = {"timestamp": 2000, "input_length": 700, "output_length": 0, "hash_ids": [1, 2]}
    first, second = read_mooncake(lines(tmp_path / "m", row, {**row, "hash_ids": [1, 3]}))
    words = first.turns[0].split(), second.turns[0].split()
    assert [len(each) for each in words] == [700, 700] and (first.at_s, first.output_tokens) == (
        2.0,
        1,
    )
    assert words[0][:512] == words[1][:512] and words[0][512:] != words[1][512:]
