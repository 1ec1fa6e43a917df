"""JSON schemas that restrict the names of properties, in words that grammars have for it."""

from typing import Any, cast

from draftwerk.speculative.replies.closed_schemas import (
    ANNOTATIONS,
    MAPS,
    VALUES,
    JsonObjectSchema,
    as_object,
)

PLACE = "#/$defs/"


def with_named_properties(schema: JsonObjectSchema) -> JsonObjectSchema:
    """Return a schema without `propertyNames` where other words say the same.

    Names from a list are properties, names of a pattern are `patternProperties`, and names that
    are any string need no word. Else it stays.
    """
    return cast("JsonObjectSchema", _named(schema, as_object(schema.get("$defs")) or {}))


def _named(schema: Any, definitions: JsonObjectSchema) -> Any:
    if isinstance(schema, list):
        return [_named(each, definitions) for each in cast("list[Any]", schema)]
    words = as_object(schema)
    if words is None:
        return schema
    found: JsonObjectSchema = {}
    for name, value in words.items():
        if name in MAPS and as_object(value) is not None:
            found[name] = {key: _named(each, definitions) for key, each in value.items()}
        else:
            found[name] = value if name in VALUES | ANNOTATIONS else _named(value, definitions)
    return _reworded(found, definitions) if "propertyNames" in found else found


def _reworded(words: JsonObjectSchema, definitions: JsonObjectSchema) -> JsonObjectSchema:
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
