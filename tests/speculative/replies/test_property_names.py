"""Names of properties are held to in words that grammars have, and schemas mean what they did."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from draftwerk.speculative.replies.argument_schemas import parameters_of
from draftwerk.speculative.replies.property_names import with_named_properties

STRING = {"type": "string"}
INTEGERS = {"type": "object", "additionalProperties": {"type": "integer"}}
REFERRED = {"$ref": "#/$defs/Colour"}
COLOURS = {"Colour": {"enum": ["a", "b"], "title": "Colour", "type": "string"}}
SAID: dict[str, dict[str, Any]] = {
    "any, as zod's record": {**INTEGERS, "propertyNames": STRING},
    "any, beside properties": {
        "type": "object",
        "properties": {"c": {"type": "integer"}},
        "propertyNames": {"description": "whatever"},
    },
    "listed": {**INTEGERS, "propertyNames": {**STRING, "enum": ["a", "b"]}, "required": ["a"]},
    "one": {**INTEGERS, "propertyNames": {"const": "a"}},
    "listed, of any value": {"type": "object", "propertyNames": {"enum": ["a", "b"]}},
    "of a pattern": {
        **INTEGERS,
        "propertyNames": {**STRING, "pattern": "^[ab]"},
        "minProperties": 1,
    },
    "none at all": {"type": "object", "additionalProperties": False, "propertyNames": STRING},
    "referred to, as pydantic's": {**INTEGERS, "propertyNames": REFERRED, "$defs": COLOURS},
    "inside": {"type": "array", "items": {**INTEGERS, "propertyNames": {"enum": ["a"]}}},
    "of a property of that name": {"properties": {"propertyNames": {**INTEGERS}}},
}
LEFT: list[dict[str, Any]] = [
    {**INTEGERS, "propertyNames": {"minLength": 2}},
    {**INTEGERS, "propertyNames": {"enum": ["a", 1]}},
    {**INTEGERS, "propertyNames": {"enum": ["ab"], "pattern": "^a"}},
    {**INTEGERS, "propertyNames": {"$ref": "#/$defs/none"}},
    {**INTEGERS, "propertyNames": {"type": "integer"}},
    {**INTEGERS, "propertyNames": False},
    {"properties": {"a": {}}, "propertyNames": {"pattern": "^a"}},
    {"enum": [{"propertyNames": STRING}]},
]
VALUES: list[Any] = [{}, {"a": 1}, {"b": 2, "a": 1}, {"ab": 1}, {"c": 1}, {"a": "x"}, {"c": "x"}, 5]


@pytest.mark.parametrize("name", SAID)
def test_other_words_mean_the_same(name: str) -> None:
    schema = SAID[name]
    before, after = map(Draft202012Validator, (schema, with_named_properties(schema)))
    nested = [*VALUES, *([each] for each in VALUES), *({"propertyNames": each} for each in VALUES)]
    verdicts = [before.is_valid(each) for each in nested]
    assert verdicts == [after.is_valid(each) for each in nested]
    assert True in verdicts and False in verdicts
    items = after.schema.get("items", after.schema)
    assert "propertyNames" not in items


@pytest.mark.parametrize("schema", LEFT, ids=str)
def test_what_has_no_other_words_is_left(schema: dict[str, Any]) -> None:
    assert with_named_properties(schema) == schema


def test_arguments_may_have_them_too() -> None:
    names = {**STRING, "enum": ["a"]}
    found = parameters_of({"properties": {"x": {**INTEGERS, "propertyNames": names}}})
    assert found["properties"]["x"]["properties"] == {"a": {"type": "integer"}}
