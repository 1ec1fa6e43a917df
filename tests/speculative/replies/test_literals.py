"""Literals of grammars, patterns without a mark, and beginnings of marks."""

import re

import pytest

from draftwerk.speculative.replies.literals import escaped_pattern, literal, overlap, quoted


def test_special_tokens_stand_by_number_between_strings() -> None:
    assert literal("a<x>b", {"<x>": 7}) == '"a" <[7]> "b"'
    assert literal("<x><xy>", {"<x>": 7, "<xy>": 8}) == "<[7]> <[8]>"
    assert literal("", {"<x>": 7}) == ""


def test_strings_have_nothing_that_ends_them() -> None:
    assert quoted('a"b\n\x7f') == '"a\\"b\\n\\u007f"'


@pytest.mark.parametrize("text", ["a.b*(c)[d]{e}^$", "x\ty\n", "a/b-c&~#|?+\\"])
def test_an_escaped_text_matches_itself_alone(text: str) -> None:
    pattern = escaped_pattern(text)
    assert re.fullmatch(pattern, text) and not re.fullmatch(pattern, text + "a")


def test_an_overlap_is_the_longest_beginning_that_is_not_whole() -> None:
    assert overlap("ab</ca", "</call>") == 4
    assert overlap("aaa", "aaaa") == 3
    assert overlap("</call>", "</call>") == 0 and overlap("", "x") == 0
