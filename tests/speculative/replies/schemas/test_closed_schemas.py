"""Objects take the properties that their schema lists, and no schema loses all of its texts."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from draftwerk.speculative.replies.schemas.closed_schemas import closed, inexact_number

ONE: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
PART = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
CLOSED = [
    (ONE, {"a": 1}),
    ({"type": "array", "items": ONE}, [{"a": 1}]),
    ({"type": "object", "properties": {"in": ONE}, "required": ["in"]}, {"in": {"a": 1}}),
    ({"anyOf": [ONE, {"type": "null"}]}, {"a": 1}),
    ({"$ref": "#/$defs/o", "$defs": {"o": ONE}}, {"a": 1}),
    ({"allOf": [ONE], "description": "as pydantic writes it"}, {"a": 1}),
    ({"type": "object", "additionalProperties": ONE}, {"any": {"a": 1}}),
    ({"properties": {"properties": ONE}}, {"properties": {"a": 1}}),
]
LEFT: list[dict[str, Any]] = [
    {"type": "object"},
    {**ONE, "additionalProperties": True},
    {**ONE, "additionalProperties": {"type": "string"}},
    {**ONE, "required": ["unlisted"]},
    {**ONE, "patternProperties": {"^x": {}}},
    {"allOf": [ONE, PART]},
    {**ONE, "anyOf": [PART, {"required": ["a"]}]},
    {**ONE, "$ref": "#/$defs/o", "$defs": {"o": PART}},
    {"properties": {"x": {"if": ONE, "then": PART}}},
    {"enum": [ONE], "default": ONE},
    {"type": "string"},
    {"allOf": None},
    {**ONE, "required": [[]]},
    {**ONE, "required": "a"},
]


def more(value: Any) -> Any:
    """Return a value whose innermost object has a property that no schema lists."""
    if isinstance(value, list):
        return [more(each) for each in value]
    (name, inner), *_ = value.items()
    return {name: more(inner)} if isinstance(inner, dict) else {**value, "unlisted": 1}


@pytest.mark.parametrize(("schema", "value"), CLOSED)
def test_what_is_listed_is_taken_and_no_more(schema: dict[str, Any], value: Any) -> None:
    before, after = Draft202012Validator(schema), Draft202012Validator(closed(schema))
    assert before.is_valid(value) and before.is_valid(more(value))
    assert after.is_valid(value) and not after.is_valid(more(value))


@pytest.mark.parametrize("schema", LEFT)
def test_what_says_it_or_describes_an_object_in_parts_is_left(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


def test_the_order_of_properties_is_kept() -> None:
    schema = {"properties": {name: {} for name in "zaq"}, "type": "object"}
    assert list(closed(schema)["properties"]) == [*"zaq"]


def test_a_schema_too_deep_to_tell_is_left() -> None:
    deep = ONE
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    assert closed(deep) is deep


@pytest.mark.parametrize(
    "number", [2**53 + 1, -(2**53) - 1, 2**63, 2**64, -(2**63) - 1, 10**400, 1e19, float("inf")]
)
def test_a_number_that_grammars_would_change_is_found(number: float) -> None:
    bound = {"type": "integer", "minimum": number}
    for schema in (bound, {"const": {"x": [number]}}, {"$defs": {"default": {"items": bound}}}):
        assert inexact_number(schema) == number
    assert inexact_number({"type": "integer", "default": number}) is None


def test_numbers_of_64_bits_and_short_ones_are_held() -> None:
    numbers = [0, True, -(2**63), 2**63 - 1, 2**53, 2**62, 0.1, -1e18]
    assert inexact_number({"enum": numbers, "maximum": 2**63 - 1}) is None
