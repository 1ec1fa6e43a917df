"""JSON schemas of tools that are not strict, without what a grammar cannot hold.

Such a schema says what its tool would like, in the words of any of a dozen libraries. A word that
is not obeyed is dropped, and a part that nothing is left of may be any JSON: arguments keep to the
rest of it.
"""

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, cast

from draftwerk.speculative.replies.schemas.closed_schemas import (
    ANNOTATIONS,
    DEPTH_MAX,
    MAPS,
    JsonObjectSchema,
    as_object,
    inexact_number,
)

TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
FORMATS = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
)
UNOBEYED = frozenset(
    ("if", "then", "else", "not", "contains", "minContains", "maxContains", "uniqueItems",
     "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems",
     "unevaluatedProperties", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef",
     "contentSchema")
)  # fmt: skip
"""Words that restrict values, and that grammars do not have."""
BEYOND = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9k]")
"""In a pattern: look-around, and references to groups."""

STEP_MAX = 10_000
"""The automaton of a greater `multipleOf` takes seconds to build."""

Check = Callable[[Any], bool]


def weakened(schema: Any) -> tuple[JsonObjectSchema, tuple[str, ...]]:
    """Return the schema of an object without what a grammar cannot hold, and the dropped words."""
    weakening = _Weakening(as_object(schema) or {})
    words = as_object(weakening.weakened(schema, 0)) or {}
    if words.get("type", "object") != "object":
        weakening.dropped.add("type")
    words["type"] = "object"
    return words, tuple(sorted(weakening.dropped))


class _Weakening:
    """One schema on the way."""

    def __init__(self, root: JsonObjectSchema) -> None:
        self.root = root
        self.dropped: set[str] = set()

    def weakened(self, schema: Any, depth: int) -> Any:
        """Return a schema, or what stands where one should."""
        if isinstance(schema, bool) and depth:
            return schema or {}
        words = as_object(schema)
        if words is None or depth > DEPTH_MAX:
            return {}
        found: JsonObjectSchema = {}
        for name, value in words.items():
            if name in ANNOTATIONS:
                continue
            if name in UNOBEYED or not self._is_good(name, value):
                self.dropped.add(name)
            elif name in MAPS:
                found[name] = {
                    key: self.weakened(each, depth + 2)
                    for key, each in value.items()
                    if name != "patternProperties" or _is_pattern(key)
                }
            elif name in SCHEMAS:
                found[name] = self._inner(value, depth + 1)
            elif name in CHECKS:
                found[name] = value
        return self._without_limits(found)

    def _inner(self, value: Any, depth: int) -> Any:
        """Return the schema that a word holds, or each of its list."""
        if isinstance(value, list):
            return [self.weakened(each, depth + 1) for each in _items(value)]
        return value if isinstance(value, bool) else self.weakened(value, depth)

    def _is_good(self, name: str, value: Any) -> bool:
        if name == "$ref":
            return isinstance(value, str) and self._is_there(value)
        return CHECKS[name](value) if name in CHECKS else True

    def _is_there(self, reference: str) -> bool:
        """Whether a reference leads to a schema of this document, and not back to itself."""
        passed: set[str] = set()
        while reference not in passed:
            passed.add(reference)
            found = self._at(reference)
            words = as_object(found)
            if words is None or not isinstance(words.get("$ref"), str):
                return isinstance(found, dict | bool)
            reference = words["$ref"]
        return False

    def _at(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            return None
        here: Any = self.root
        for step in reference.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            words = as_object(here)
            if words is None or key not in words:
                return None
            here = words[key]
        return here

    def _without_limits(self, words: JsonObjectSchema) -> JsonObjectSchema:
        """Return it without pairs of limits that contradict each other."""
        for least, most in LIMITS:
            if least in words and most in words and words[least] > words[most]:
                self.dropped |= {least, most}
                del words[least], words[most]
        return words


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and isfinite(value) and inexact_number(value) is None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_type(value: Any) -> bool:
    listed = _items(value) or [value]
    return bool(listed) and all(isinstance(each, str) and each in TYPES for each in listed)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, str) and BEYOND.search(value) is None


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in _items(value))


def _is_listed(value: Any) -> bool:
    return bool(_items(value)) and inexact_number(value) is None


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_schemas(value: Any) -> bool:
    listed = _items(value)
    return bool(listed) and all(map(_is_schema, listed))


def _items(value: Any) -> list[Any]:
    """Return a list as it is; nothing of what is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


SCHEMAS: dict[str, Check] = {
    "additionalProperties": _is_schema,
    "propertyNames": _is_schema,
    "items": lambda value: _is_schema(value) or _is_schemas(value),
    **dict.fromkeys(("prefixItems", "anyOf", "oneOf", "allOf"), _is_schemas),
}
"""Words that hold schemas, and how they do."""
CHECKS: dict[str, Check] = {
    **SCHEMAS,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(sorted(MAPS - UNOBEYED), _is_map),
    "multipleOf": lambda value: _is_number(value) and 0 < value <= STEP_MAX,
    "type": _is_type,
    "enum": _is_listed,
    "const": lambda value: inexact_number(value) is None,
    "required": _is_names,
    "pattern": _is_pattern,
    "format": lambda value: isinstance(value, str) and value in FORMATS,
    "$ref": lambda value: isinstance(value, str),
}
"""Words that are kept, and what their values must be."""
LIMITS = (
    ("minimum", "maximum"),
    ("minItems", "maxItems"),
    ("minLength", "maxLength"),
    ("minProperties", "maxProperties"),
)
