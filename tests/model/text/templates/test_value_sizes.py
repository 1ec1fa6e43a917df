"""Sizes are told before a text is made, and never less than it comes to have."""

from typing import Any

import pytest

from draftwerk.model.text.templates.value_sizes import formatted_size, made_size, text_size


def test_what_a_value_has_twice_counts_twice() -> None:
    part = ["x" * 100]
    assert text_size([part, part]) >= 200
    assert text_size("abc") == 5


@pytest.mark.parametrize(
    ("form", "values"),
    [("%10s", "a"), ("%s and %s", ("a" * 50, "b")), ("%*d", (40, 1)), ("%.3f", 1.5)],
)
def test_a_formatted_text_is_no_longer_than_was_told(form: str, values: Any) -> None:
    assert formatted_size(form, values) >= len(form % values)


@pytest.mark.parametrize(
    ("name", "value", "args"),
    [
        ("replace", "aaa", ["a", "bcd"]),
        ("expandtabs", "a\tb\tc", [20]),
        ("format", "%5s", ["x"]),
    ],
)
def test_methods_make_no_more_than_was_told(name: str, value: str, args: list[Any]) -> None:
    made = value % tuple(args) if name == "format" else getattr(value, name)(*args)
    assert made_size(name, value, args) >= len(made)
