"""What grammars do not obey is said in other words, and schemas mean what they did."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer

from draftwerk.model.text.grammar import compiled
from draftwerk.speculative.replies.argument_schemas import parameters_of
from draftwerk.speculative.replies.schemas.reworded_schemas import LENGTHS, reworded
from draftwerk.speculative.sampling import Grammar

Schema = dict[str, Any]
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
    "of a pattern that lists them": {**INTEGERS, "propertyNames": {"pattern": "^(a|b)$"}},
    "of patterns that list them": {
        "type": "object",
        "patternProperties": {"^a$": {"type": "integer"}, "^(?:b|c)$": STRING},
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
    {"patternProperties": {"^a$": {}, "^(a|b)$": {"type": "integer"}}},
    {"properties": {"a": {}}, "patternProperties": {"^a$": {"type": "integer"}}},
    {"enum": [{"propertyNames": STRING}]},
]
VALUES: list[Any] = [{}, {"a": 1}, {"b": 2, "a": 1}, {"ab": 1}, {"c": 1}, {"a": "x"}, {"c": "x"}, 5]


@pytest.mark.parametrize("name", SAID)
def test_other_words_mean_the_same(name: str) -> None:
    schema = SAID[name]
    before, after = map(Draft202012Validator, (schema, reworded(schema)))
    nested = [*VALUES, *([each] for each in VALUES), *({"propertyNames": each} for each in VALUES)]
    verdicts = [before.is_valid(each) for each in nested]
    assert verdicts == [after.is_valid(each) for each in nested]
    assert True in verdicts and False in verdicts
    items = after.schema.get("items", after.schema)
    assert "propertyNames" not in items


@pytest.mark.parametrize("schema", LEFT, ids=str)
def test_what_has_no_other_words_is_left(schema: dict[str, Any]) -> None:
    assert reworded(schema) == schema


def test_arguments_may_have_them_too() -> None:
    names = {**STRING, "enum": ["a"]}
    found = parameters_of({"properties": {"x": {**INTEGERS, "propertyNames": names}}})
    assert found["properties"]["x"]["properties"] == {"a": {"type": "integer"}}


BOUNDS = (None, 0, 3, -3, 0.25, -0.25, 3.5, -3.5, 100, 100.001, 1e-30, 10**400, float("inf"))
NUMBERS = ("0", "-0", "0.0", "0.1", "-0.1", "0.25", "0.3", "1", "3", "-3", "3.0", "3.25", "-3.25",
           "3.5", "-3.5", "4", "-4", "99.5", "100", "100.0", "100.0005", "101", "-101")  # fmt: skip
BYTES = LLTokenizer("byte")


def takes(grammar: str, text: str) -> bool:
    """Whether a text is one of a grammar's, wholly."""
    matcher = LLMatcher(BYTES, grammar, log_level=0)
    return matcher.try_consume_tokens([*text.encode()]) == len(text) and matcher.is_accepting()


PARTS: dict[str, Callable[[Schema, Schema], Schema]] = {
    "allOf": lambda low, high: {"allOf": [low, high]},
    "of its own": lambda low, high: {**high, "allOf": [low]},
    "anyOf": lambda low, high: {**low, "anyOf": [high]},
    "referred to": lambda low, high: {**low, "$ref": "#/$defs/a", "$defs": {"a": high}},
}


@pytest.mark.parametrize("kind", ("number", "integer"))
@pytest.mark.parametrize("part", PARTS)
def test_no_bound_in_another_part_lets_an_open_one_be_taken(part: str, kind: str) -> None:
    for at, within, open_too in product((0, 3, 100, 3.5), (0.25, 0.5, 1, 50), (False, True)):
        for low, high, is_low in ((at, at + within, True), (-at - within, -at, False)):
            lows, highs = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
            least, most = lows[is_low or open_too], highs[not is_low or open_too]
            schema = {"type": kind, **PARTS[part]({least: low}, {most: high})}
            grammar = compiled(Grammar("json_schema", json.dumps(reworded(schema))))
            taken = [json.loads(each) for each in NUMBERS if takes(grammar, each)]
            assert all(map(Draft202012Validator(schema).is_valid, taken)), (schema, taken)
            assert taken or kind == "integer" or within < 50, schema


@pytest.mark.parametrize("open_low", (False, True))
@pytest.mark.parametrize("open_high", (False, True))
def test_no_number_is_taken_that_a_bound_excludes(open_low: bool, open_high: bool) -> None:
    names = (
        "exclusiveMinimum" if open_low else "minimum",
        "exclusiveMaximum" if open_high else "maximum",
    )
    for bounds in product(BOUNDS, BOUNDS):
        given = {name: at for name, at in zip(names, bounds, strict=True) if at is not None}
        schema = {"type": "number", **given}
        said = reworded(schema)
        before, after = map(Draft202012Validator, (schema, said))
        values = [json.loads(each) for each in NUMBERS]
        assert [before.is_valid(each) for each in values] == [
            after.is_valid(each) for each in values
        ]
        if any(abs(at) > 1e9 or 0 < at < 1e-9 for at in given.values()):
            continue  # the grammar is refused, or has the number as another
        grammar = compiled(Grammar("json_schema", json.dumps(said)))
        taken = [each for each in NUMBERS if takes(grammar, each)]
        assert all(before.is_valid(json.loads(each)) for each in taken), (schema, taken)


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_format_has_a_length_unless_it_names_one(kind: str) -> None:
    schema = {"type": "string", "format": kind}
    assert reworded(schema) == {**schema, "maxLength": LENGTHS[kind]}
    assert reworded({**schema, "maxLength": 9}) == {**schema, "maxLength": 9}
    assert reworded({**schema, "minLength": 9999}) == {**schema, "minLength": 9999}
