"""JSON schemas of arguments, reduced to what a grammar enforces."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from msgspec import Struct

from draftwerk.speculative.replies.formats import CallFormat
from draftwerk.speculative.replies.schemas.closed_schemas import (
    ANNOTATIONS,
    CLOSABLE,
    DEPTH_MAX,
    INEXACT,
    MAPS,
    VALUES,
    JsonObjectSchema,
    as_object,
    closed,
    inexact_number,
    is_open,
)
from draftwerk.speculative.replies.schemas.reworded_schemas import reworded

BARE_STRING = frozenset(("type", "enum", "const", "minLength", "maxLength"))


class JsonLayout(TypedDict):
    """Where JSON has white space."""

    whitespace_flexible: bool
    item_separator: str
    key_separator: str


LAYOUT: JsonLayout = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As templates write the calls of earlier turns: a space behind commas and colons, no more."""


LENIENT = {"lenient": True}
"""Marks a schema that may be weakened."""


class BadSchema(ValueError):
    """A schema of arguments that cannot be enforced, with the reason in words for the client."""

    def __init__(self, reason: str, function: int = 0) -> None:
        super().__init__(reason)
        self.function = function
        """Which of several functions' it is."""


class ToolFunction(Struct, frozen=True):
    """A function that may be called."""

    name: str
    parameters: JsonObjectSchema
    """The JSON schema of its arguments, without annotations."""
    strict: bool = True
    """Whether arguments keep to every word of it; else to those that a grammar can hold."""


def parameters_of(schema: Any) -> JsonObjectSchema:
    """Return the schema of a function's arguments without annotations. Raises BadSchema."""
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(schema, dict):
        raise BadSchema("must be an object")
    found: JsonObjectSchema = _bare(schema, 0)
    required = found.get("required", [])
    if not isinstance(required, list) or not all(
        isinstance(each, str) for each in _items(required)
    ):
        raise BadSchema("has 'required' that is no list of names")
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadSchema("holds half a character") from None
    if (number := inexact_number(found)) is not None:
        raise BadSchema(f"has {number}, which {INEXACT}")
    kind = found.setdefault("type", "object")
    if kind != "object" and kind != ["object"]:
        raise BadSchema("must be of the type 'object'")
    found = closed(reworded(found))
    # What describes inner objects in parts leaves the arguments themselves one object.
    return found | {"additionalProperties": False} if is_open(found) else found


def _bare(schema: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise BadSchema(f"is nested more than {DEPTH_MAX} levels deep")
    if isinstance(schema, list):
        return [_bare(each, depth + 1) for each in _items(schema)]
    if not isinstance(schema, dict):
        return schema
    found: JsonObjectSchema = {}
    for name, value in _entries(schema):
        if name in ANNOTATIONS:
            continue
        if name in MAPS:
            if not isinstance(value, dict):
                raise BadSchema(f"has {name!r} that is no object")
            found[name] = {key: _bare(each, depth + 1) for key, each in _entries(value)}
        else:
            found[name] = value if name in VALUES else _bare(value, depth + 1)
    return found


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    yield from value.items()


def _items(value: Any) -> Iterator[Any]:
    yield from value


def json_rule(schema: Any, definitions: JsonObjectSchema, strict: bool = True) -> str:
    """Return a schema as a grammar's inline JSON, written as templates write it."""
    whole = as_object(schema)
    whole = {"allOf": [schema]} if whole is None else whole
    layout = LAYOUT if strict else {**LAYOUT, **LENIENT}
    text: JsonObjectSchema = {**definitions, **whole, "x-guidance": layout}
    return "%json " + json.dumps(text, ensure_ascii=False)


def definitions_of(parameters: JsonObjectSchema) -> JsonObjectSchema:
    """Return what references inside a property may mean."""
    return {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}


def listed_properties(
    parameters: JsonObjectSchema, strict: bool = True
) -> tuple[JsonObjectSchema, frozenset[str]]:
    """Return properties and the names of required ones, of arguments written one by one.

    Raises BadSchema for conditions over several arguments of a strict function.
    """
    properties: JsonObjectSchema = parameters.get("properties") or {}
    required = frozenset(parameters.get("required") or ())
    if not strict:
        return properties, required & properties.keys()
    odd = sorted(parameters.keys() - CLOSABLE - {"additionalProperties"})
    if odd:
        raise BadSchema(f"has {odd[0]!r}, which this model's format of calls has no way to obey")
    if unknown := sorted(required - properties.keys()):
        raise BadSchema(f"requires {unknown[0]!r}, which is no property")
    return properties, required


def is_bare_string(schema: Any) -> bool:
    """Whether a property's values are strings restricted by nothing but length or a list."""
    words = as_object(schema)
    if words is None:
        return False
    listed: list[Any] = [*words.get("enum", ()), *([words["const"]] if "const" in words else ())]
    texts = all(isinstance(each, str) for each in listed)
    by_list = bool(listed) and "type" not in words
    return words.keys() <= BARE_STRING and texts and (words.get("type") == "string" or by_list)


def raw_strings(form: CallFormat, functions: Sequence[ToolFunction]) -> tuple[tuple[str, str], ...]:
    """Return the arguments that an XML-like format writes without quotes."""
    if form.shape != "xml":
        return ()
    found: list[tuple[str, str]] = []
    for each in functions:
        properties: JsonObjectSchema = each.parameters.get("properties") or {}
        found += [(each.name, name) for name in properties if is_bare_string(properties[name])]
    return tuple(found)
