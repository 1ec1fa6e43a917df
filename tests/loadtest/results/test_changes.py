"""A changed text's place and cause, over receipts changed in one thing each."""

from copy import deepcopy
from typing import Any

import pytest

from draftwerk_tools.loadtest.results.changes import change_of

RECEIPT: dict[str, Any] = {
    "fingerprint": "fp_1",
    "prompt": {"count": 3, "digest": "p"},
    "digests": {"model": "m", "seed": "s", "parameters.sampling.top_k": "k", "choices": "c"},
    "choices": [
        {"tokens": [1, 2, 3], "finish_reason": "stop"},
        {"tokens": [4, 5], "finish_reason": "length", "logprobs": [-1.0, -2.0]},
    ],
}
PLACES: list[tuple[list[Any], Any, str]] = [
    (["choices", 0, "tokens"], [1, 7, 3], "choices[0].tokens[1]"),
    (["choices", 0, "tokens"], [1, 2], "choices[0].tokens[2]"),
    (["choices", 1, "tokens"], [4, 5, 6], "choices[1].tokens[2]"),
    (["choices", 0, "finish_reason"], "length", "choices[0].finish_reason"),
    (["choices", 0, "stop"], "x", "choices[0].stop"),
    (["choices", 1, "logprobs"], [-1.0, -2.5], "choices[1].logprobs"),
    (["choices"], RECEIPT["choices"][:1], "choices[1]"),
]
CAUSES: list[tuple[list[Any], Any, str]] = [
    (["fingerprint"], "fp_2", "fingerprint"),
    (["prompt", "digest"], "q", "prompt"),
    (["digests", "parameters.sampling.top_k"], "l", "parameters"),
    (["digests", "seed"], "t", "parameters"),
    (["digests", "model"], "another name", "defect"),
    (["digests", "choices"], "d", "defect"),
]


def changed(receipt: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    made = deepcopy(receipt)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def test_equal_texts_are_no_change_whatever_else_is_new() -> None:
    assert change_of([RECEIPT], [RECEIPT]) is None
    for path, value, _ in CAUSES:
        assert change_of([RECEIPT], [changed(RECEIPT, path, value)]) is None


@pytest.mark.parametrize(("path", "value", "place"), PLACES)
def test_a_change_is_told_with_its_first_place(path: list[Any], value: Any, place: str) -> None:
    found = change_of([RECEIPT], [changed(RECEIPT, path, value)])
    assert found is not None
    assert (found.cause, found.place) == ("defect", place)
    found = change_of([RECEIPT] * 2, [RECEIPT, changed(RECEIPT, path, value)])
    assert found is not None
    assert found.place == f"prompt 1, {place}"


@pytest.mark.parametrize(("path", "value", "cause"), CAUSES)
def test_a_change_has_the_cause_that_comes_first(path: list[Any], value: Any, cause: str) -> None:
    other = changed(RECEIPT, ["choices", 0, "tokens"], [9])
    found = change_of([RECEIPT], [changed(other, path, value)])
    assert found is not None
    assert found.cause == cause


def test_other_prompts_are_a_change() -> None:
    found = change_of([RECEIPT, RECEIPT], [RECEIPT])
    assert found is not None
    assert (found.cause, found.detail) == ("prompt", "2 prompts, now 1")
