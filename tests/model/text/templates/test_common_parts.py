"""What two texts share, without a marker that this cuts."""

from draftwerk.model.text.templates.common_parts import shared, shared_end, whole_marks


def test_beginnings_are_shared_as_far_as_they_are_equal() -> None:
    assert shared("abcd", "abxd") == "ab"
    assert shared("ab", "abc") == "ab" and shared("a", "b") == ""


def test_a_beginning_is_cut_before_a_marker_that_is_not_whole() -> None:
    assert whole_marks("x<call><na") == "x<call>"
    assert whole_marks("x<call>") == "x<call>" and whole_marks("x") == "x"


def test_an_ending_is_cut_behind_a_marker_that_is_not_whole() -> None:
    assert shared_end("1</a></call>", "2</b></call>") == "</call>"
    assert shared_end("x</call>", "</call>") == "</call>"
