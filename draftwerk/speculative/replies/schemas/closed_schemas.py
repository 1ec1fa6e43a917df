"""JSON schemas whose objects take the listed properties alone, where they leave that open.

JSON Schema lets an object have any other property; a model that may write one often does not end.
"""

from collections.abc import Callable
from typing import Any, cast

JsonObjectSchema = dict[str, Any]

DEPTH_MAX = 64
"""The depth of schemas within schemas."""
ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "$comment", "$schema", "$id", "deprecated",
     "readOnly", "writeOnly", "x-guidance")
)  # fmt: skip
"""Words that restrict nothing, and one that would change how text is written."""
MAPS = frozenset(("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"))
"""Words whose values hold a schema by name."""
VALUES = frozenset(("enum", "const", "required", "dependentRequired"))
"""Words whose values are no schemas."""
CLOSABLE = frozenset(("type", "properties", "required", "$defs", "definitions"))
"""An object of only these words takes no properties but its own, where it leaves that open."""
JOINING = frozenset(
    ("allOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired",
     "unevaluatedProperties", "patternProperties", "propertyNames")
)  # fmt: skip
"""Words by which several schemas describe one object, each of them a part of it."""
CHOOSING = frozenset(("anyOf", "oneOf", "$ref"))
"""Words that do so where the object has words of its own beside them."""

INEXACT = "a grammar does not hold exactly"


def closed(schema: JsonObjectSchema) -> JsonObjectSchema:
    """Return the schema with `additionalProperties` false where an object does not say it.

    One that describes some object in several parts is returned as it is: a part does not know the
    properties of the others.
    """
    if joins(schema):
        return schema
    return cast("JsonObjectSchema", changed(schema, _closed))


def inexact_number(schema: Any) -> float | None:
    """Return a number that a grammar, which has them as doubles or in 64 bits, changes."""
    if isinstance(schema, int | float):
        return None if _is_exact(schema) else schema
    words = as_object(schema)
    inner: list[Any] = _inner(words, ANNOTATIONS) if words is not None else []
    if isinstance(schema, list):
        inner = cast("list[Any]", schema)
    return next((found for each in inner if (found := inexact_number(each)) is not None), None)


def _is_exact(number: float) -> bool:
    if isinstance(number, float):
        return abs(number) < 2.0**63
    return abs(number) < 2**1023 and min(max(int(float(number)), -(2**63)), 2**63 - 1) == number


def as_object(schema: Any) -> JsonObjectSchema | None:
    """Return a schema that is an object; None for the schemas `true` and `false`."""
    return cast("JsonObjectSchema", schema) if isinstance(schema, dict) else None


def joins(schema: Any, depth: int = 0) -> bool:
    """Whether a schema, or one in it, describes a value in parts, or is too deep to tell."""
    if depth > DEPTH_MAX:
        return True
    if isinstance(schema, list):
        return any(joins(each, depth + 1) for each in cast("list[Any]", schema))
    words = as_object(schema)
    if words is None:
        return False
    own = words.keys() - ANNOTATIONS - CHOOSING - {"$defs", "definitions"}
    parts: Any = words.get("allOf")
    is_single = words.keys() - ANNOTATIONS == {"allOf"} and _is_list(parts) and len(parts) == 1
    if words.keys() & JOINING and not is_single:
        return True
    if words.keys() & CHOOSING and own - {"type"}:
        return True
    return any(joins(each, depth + 1) for each in _inner(words, VALUES | ANNOTATIONS))


def _inner(words: JsonObjectSchema, without: frozenset[str]) -> list[Any]:
    """Return what is directly inside a schema, `without` that of some words."""
    found: list[Any] = []
    for name, value in words.items():
        if name in MAPS:
            found += (as_object(value) or {}).values()
        elif name not in without:
            found.append(value)
    return found


def changed(schema: Any, change: Callable[[JsonObjectSchema], JsonObjectSchema]) -> Any:
    """Return a schema whose objects' words are changed, those inside before those around."""
    if isinstance(schema, list):
        return [changed(each, change) for each in cast("list[Any]", schema)]
    words = as_object(schema)
    if words is None:
        return schema
    found: JsonObjectSchema = {}
    for name, value in words.items():
        if name in MAPS and as_object(value) is not None:
            found[name] = {key: changed(each, change) for key, each in value.items()}
        else:
            found[name] = value if name in VALUES | ANNOTATIONS else changed(value, change)
    return change(found)


def _closed(words: JsonObjectSchema) -> JsonObjectSchema:
    return words | {"additionalProperties": False} if is_open(words) else words


def is_open(words: JsonObjectSchema) -> bool:
    """Whether an object lists properties, and leaves open whether there may be others."""
    properties = as_object(words.get("properties"))
    required: Any = words.get("required") or []
    return (
        bool(properties)
        and words.keys() - ANNOTATIONS <= CLOSABLE
        and _is_list(required)
        and all(isinstance(each, str) and each in properties for each in required)
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
