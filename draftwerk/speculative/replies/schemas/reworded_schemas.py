"""JSON schemas said in words that grammars obey, where the words they have are not obeyed."""

import re
from math import inf
from typing import Any, cast

from draftwerk.speculative.replies.schemas.closed_schemas import (
    ANNOTATIONS,
    JsonObjectSchema,
    as_object,
    changed,
    joins,
)

PLACE = "#/$defs/"
LENGTHS = {
    "date-time": 40, "time": 24, "duration": 40, "email": 254, "hostname": 253, "uri": 2048,
}  # fmt: skip
"""Characters of formats that grammars let go on for ever; the others end by themselves."""
LISTED = re.compile(r"\^(?:\((?:\?:)?((?:[\w -]+\|)*[\w -]+)\)|([\w -]+))\$")
"""A pattern of names that are told one by one."""
BOUND_MAX = 1e13
"""Greater numbers have too few digits behind the point."""
LEAST, STEP = 1e-20, 1e-14
"""The number taken to come after 0, and after another relative to it: grammars tell no nearer ones
apart."""


def reworded(schema: JsonObjectSchema) -> JsonObjectSchema:
    """Return a schema whose texts are those of the given one."""
    definitions = as_object(schema.get("$defs")) or {}
    in_parts = joins(schema)

    def change(words: JsonObjectSchema) -> JsonObjectSchema:
        bounded = _with_bounded_format(_with_closed_bounds(words, in_parts))
        return _with_listed_patterns(_with_named_properties(bounded, definitions))

    return cast("JsonObjectSchema", changed(schema, change))


def _with_closed_bounds(words: JsonObjectSchema, in_parts: bool) -> JsonObjectSchema:
    """Return the schema of a number without an open bound at an integer within 1 of the other one.

    A grammar takes that integer itself, written without a point. In a schema of parts the other
    bound may stand anywhere.
    """
    low, high = _number(words, "exclusiveMinimum"), _number(words, "exclusiveMaximum")
    least, most = _number(words, "minimum"), _number(words, "maximum")
    above = min((each for each in (high, most) if each is not None), default=inf)
    below = max((each for each in (low, least) if each is not None), default=-inf)
    found = dict(words)
    near = in_parts or (low is not None and low < above < low + 1)
    if low is not None and near and low >= 0 and low.is_integer():
        del found["exclusiveMinimum"]
        found["minimum"] = _after(low) if least is None else max(_after(low), least)
    near = in_parts or (high is not None and high - 1 < below < high)
    if high is not None and near and high <= 0 and high.is_integer():
        del found["exclusiveMaximum"]
        found["maximum"] = -_after(-high) if most is None else min(-_after(-high), most)
    return found


def _with_bounded_format(words: JsonObjectSchema) -> JsonObjectSchema:
    """Return the schema of a format with the length that it has at most, unless it names one."""
    kind: Any = words.get("format")
    longest = LENGTHS.get(kind) if isinstance(kind, str) else None
    least: Any = words.get("minLength", 0)
    if longest is None or "maxLength" in words or not isinstance(least, int) or least > longest:
        return words
    return {**words, "maxLength": longest}


def _with_listed_patterns(words: JsonObjectSchema) -> JsonObjectSchema:
    """Return an object's schema whose patterns of names that can be told are properties.

    A grammar takes a name of a pattern again and again.
    """
    patterns, own = (
        as_object(words.get("patternProperties")),
        as_object(words.get("properties", {})),
    )
    if not patterns or own is None:
        return words
    found: JsonObjectSchema = {}
    for pattern, value in patterns.items():
        listed = LISTED.fullmatch(pattern)
        names = (listed[1] or listed[2]).split("|") if listed else []
        if not names or found.keys() & names or own.keys() & names:
            return words
        found |= dict.fromkeys(names, value)
    others = {name: value for name, value in words.items() if name != "patternProperties"}
    return {**others, "properties": {**own, **found}}


def _number(words: JsonObjectSchema, name: str) -> float | None:
    value: Any = words.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < BOUND_MAX else None


def _after(number: float) -> float:
    return max(number * (1 + STEP), LEAST)


def _with_named_properties(
    words: JsonObjectSchema, definitions: JsonObjectSchema
) -> JsonObjectSchema:
    """Return an object's schema without `propertyNames` where other words say the same.

    Names from a list are properties, names of a pattern are `patternProperties`, and names that
    are any string need no word. Else it stays.
    """
    if "propertyNames" not in words:
        return words
    names = as_object(words["propertyNames"])
    place = (names or {}).get("$ref")
    if isinstance(place, str) and place.startswith(PLACE):
        names = as_object(definitions.get(place.removeprefix(PLACE)))
    others = {name: value for name, value in words.items() if name != "propertyNames"}
    own = {} if names is None else {n: names[n] for n in names if n not in ANNOTATIONS}
    if names is None or own.pop("type", "string") != "string":
        return words
    if not own:
        return others
    if others.keys() & {"properties", "patternProperties"} or len(own) > 1:
        return words
    value = others.pop("additionalProperties", True)
    closed = {**others, "additionalProperties": False}
    given: Any = own.get("enum", [own["const"]] if "const" in own else None)
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    if listed and all(isinstance(each, str) for each in listed):
        return {**closed, "properties": dict.fromkeys(listed, value)}
    if isinstance(own.get("pattern"), str):
        return {**closed, "patternProperties": {own["pattern"]: value}}
    return words
