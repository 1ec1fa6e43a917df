"""Schemas of tools that are not strict: what no grammar holds is dropped, and the rest kept."""

from contextlib import suppress
from random import Random
from typing import Any

import jsonschema
import pytest

from draftwerk.model.text.grammar_check import fault
from draftwerk.speculative.replies.argument_schemas import ToolFunction, parameters_of
from draftwerk.speculative.replies.grammar import reply_grammar
from draftwerk.speculative.replies.schemas.weakened_schemas import weakened
from draftwerk.speculative.replies.weaker_grammars import weaker
from draftwerk.speculative.sampling import Grammar
from tests.model.text.test_replies import (
    calls_in,
    cut,
    format_of,
    grammars,
    parsed,
    rules_of,
    walk,
)

TRIES_MAX, SEEDS_MAX = 8, 20
STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string", "maxLength": 3}}
BEYOND: dict[str, Any] = {
    "a set": {**STRINGS, "uniqueItems": True},
    "contains": {**STRINGS, "contains": {"type": "string"}},
    "not": {"not": {"type": "string"}},
    "if": {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "dependent": {
        "type": "object", "properties": {"a": {"type": "null"}}, "dependentRequired": {"a": ["b"]},
    },
    "unevaluated": {"type": "object", "unevaluatedProperties": False},
    "some of optional": {
        "type": "object", "properties": {"a": {"type": "null"}}, "minProperties": 1,
    },
    "look-ahead": {"type": "string", "pattern": "^(?!a).*$", "maxLength": 5},
    "a group again": {"type": "string", "pattern": r"(a)\1", "maxLength": 5},
    "half a class": {"type": "string", "pattern": "([a", "maxLength": 5},
    "a path": {"type": "string", "format": "path", "maxLength": 5},
    "bytes": {"type": "string", "format": "binary", "maxLength": 5},
    "any": {"type": "any"},
    "any of several": {"type": ["string", "any"]},
    "no reference": {"$ref": "#/$defs/none"},
    "another document": {"$ref": "https://example.com/schema"},
    "a reference to itself": {"$ref": "#/properties/odd"},
    "64 bits": {"type": "integer", "maximum": 2**64, "minimum": 0},
    "an endless default": {"type": "integer", "minimum": 0, "maximum": 9, "default": float("inf")},
    "one of overlapping": {"oneOf": [{"type": "null"}, {"type": ["null", "boolean"]}]},
    "nothing at all": {"type": "string", "enum": [1]},
    "no choice": {"enum": []},
    "false": False,
    "less than its least": {**STRINGS, "minItems": 3, "maxItems": 1},
    "a multiple of 0": {"type": "integer", "multipleOf": 0, "minimum": 0, "maximum": 9},
    "a number for a type": {"type": 5},
    "a list of properties": {"type": "object", "properties": []},
    "a word for a list": {"type": "object", "required": "a"},
    "a count in words": {"type": "string", "minLength": "1", "maxLength": 5},
    "names by look-ahead": {"type": "object", "patternProperties": {"^(?!x)": {"type": "null"}}},
    "a number": 5,
    "too large a step": {"type": "integer", "multipleOf": 982451653, "minimum": 0},
}  # fmt: skip
"""Schemas of one argument."""
GOOD: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 9}


def followed(grammar: Grammar) -> Grammar:
    """Return the grammar as it is decoded under."""
    for _ in range(TRIES_MAX):
        if not (said := fault(grammars(), grammar)):
            return grammar
        found = weaker(grammar, said)
        assert found is not None, said
        grammar = found
    raise AssertionError("it does not end")


@pytest.mark.parametrize("family", ["hermes", "qwen3_coder", "lfm2", "gemma4"])
@pytest.mark.parametrize("name", BEYOND)
def test_what_a_grammar_cannot_hold_is_dropped_and_the_rest_kept(name: str, family: str) -> None:
    schema = {"type": "object", "properties": {"odd": BEYOND[name], "n": GOOD}, "required": ["n"]}
    function = ToolFunction("it", parameters_of(weakened(schema)[0]), strict=False)
    rules = rules_of(format_of(family), functions=(function,), parallel=False)
    grammar = followed(reply_grammar(rules))
    for text in ended_walks(grammar):
        ((called, values),) = calls_in(parsed(rules.form, cut(text, Random(0))))
        assert called == "it" and isinstance(values, dict)
        if '{"type": "object", "x-guidance"' not in grammar.text:
            jsonschema.validate(values["n"], GOOD)


def ended_walks(grammar: Grammar) -> list[str]:
    """Return texts that a grammar allows; what may be anything seldom ends."""
    found: list[str] = []
    for seed in range(SEEDS_MAX):
        with suppress(AssertionError):
            found.append(walk(grammar, Random(seed), True))
        if len(found) == 2:
            break
    assert found
    return found


def test_a_schema_that_is_no_object_takes_any_object() -> None:
    for schema in (True, [], "x", {"type": "string"}, {"type": ["object", "null"]}):
        found, dropped = weakened(schema)
        assert found == {"type": "object"}
        assert dropped in ((), ("type",))


def test_what_is_dropped_is_named_and_what_only_describes_is_not() -> None:
    schema = {
        "type": "object",
        "description": "d",
        "properties": {"a": {"type": "array", "uniqueItems": True, "x-order": 3, "title": "A"}},
    }
    found, dropped = weakened(schema)
    assert found == {"type": "object", "properties": {"a": {"type": "array"}}}
    assert dropped == ("uniqueItems",)


ENDLESS: dict[str, Any] = {
    "type": "object", "properties": {"odd": {"$ref": "#"}, "n": GOOD}, "required": ["odd", "n"],
}  # fmt: skip
"""No value of it ends; the library names no place."""


def test_what_is_endless_goes_where_the_library_names_no_place() -> None:
    functions = tuple(
        ToolFunction("it", parameters_of(weakened(ENDLESS)[0]), strict) for strict in (False, True)
    )
    lax, strict = (
        reply_grammar(rules_of(format_of("hermes"), functions=(each,))) for each in functions
    )
    said = fault(grammars(), strict)
    assert said and weaker(strict, said) is None
    grammar = followed(lax)
    assert "$ref" not in grammar.text and '"maximum": 9' in grammar.text


def test_a_strict_function_and_a_fault_elsewhere_are_not_weakened() -> None:
    schema = {"type": "object", "properties": {"odd": {"type": "string", "pattern": "([a"}}}
    function = ToolFunction("it", parameters_of(schema))
    grammar = reply_grammar(rules_of(format_of("hermes"), functions=(function,)))
    line = 1 + [each.startswith("args_0") for each in grammar.text.split("\n")].index(True)
    assert weaker(grammar, f"at {line}(9): regex parse error: ([a ^ error") is None
    assert weaker(grammar, "at 1(9): odd") is None
    assert weaker(grammar, "no text satisfies it") is None
    assert weaker(Grammar("regex", "([a"), "at 1(1): odd") is None
