"""Bare arguments: the JSON is the same however the text is cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.replies.bare_arguments import BareScanner, in_order, written_bare

QUOTE = '<|"|>'
VALUES: list[dict[str, Any]] = [
    {"city": "K\u00f6ln", "days": [1, 2], "now": True},
    {"b": {"a": None, "C": "x, {y}: [z]"}, "a": 1.5},
    {"empty": [], "text": ""},
]


def scanned(text: str, cuts: list[int]) -> str:
    """Return the JSON that a scanner makes of a text that comes in pieces."""
    scanner, held, out = BareScanner(QUOTE), "", ""
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    for start, stop in zip([0, *ends], ends, strict=False):
        ready, held = scanner.push(held + text[start:stop])
        out += ready
    assert scanner.over and not held.strip("}")
    return out


@given(st.sampled_from(VALUES), st.booleans(), st.lists(st.integers(0, 80), max_size=6))
def test_what_is_written_is_read_again(
    value: dict[str, Any], python_words: bool, cuts: list[int]
) -> None:
    text = written_bare(value, QUOTE, python_words)
    assert json.loads(scanned(text[1:], cuts)) == value


@pytest.mark.parametrize(("python_words", "nothing"), [(True, "{a:None}"), (False, "{a:null}")])
def test_nothing_has_the_word_of_its_family(python_words: bool, nothing: str) -> None:
    assert written_bare({"a": None}, QUOTE, python_words) == nothing


def test_names_are_in_the_order_of_templates() -> None:
    assert in_order(["b", "A", "c"]) == ["A", "b", "c"]
