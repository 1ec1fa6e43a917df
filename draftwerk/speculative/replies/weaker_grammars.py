"""Grammars of replies without those lax schemas that the library finds no text for."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from draftwerk.speculative.replies.grammar import PLACE
from draftwerk.speculative.replies.schemas.closed_schemas import (
    JsonObjectSchema,
    as_object,
    changed,
)
from draftwerk.speculative.sampling import Grammar

RULE = re.compile(r"(?P<name>[a-z]+_[0-9_]+): %json (?P<schema>.*)")
"""The rule of a schema."""
LARGE = frozenset(
    ("multipleOf", "pattern", "patternProperties", "allOf", "$ref", "minLength", "maxLength",
     "minItems", "maxItems", "minProperties", "maxProperties")
)  # fmt: skip
"""Words that make a grammar large or endless."""


def weaker(grammar: Grammar, reason: str) -> Grammar | None:
    """Return a reply's grammar without the fault that the library finds in a lax schema of it.

    A pattern that it names goes first, then all of the schema: that may be any JSON. Where it names
    no place, as for what is too large, all lax schemas have less. None where it is elsewhere.
    """
    if grammar.kind not in ("lark", "reply"):
        return None
    parts = json.loads(grammar.text) if grammar.kind == "reply" else {"reply": grammar.text}
    lines = parts["reply"].split("\n")
    named, place = " ".join(reason.split()), PLACE.search(reason)
    at = range(len(lines)) if place is None else (int(place[1]) - 1,)
    fewer = _without_large if place is None else partial(_without_patterns, reason=named)
    for change in (fewer, _anything):
        found = {i: rule for i in at if (rule := _changed_rule("".join(lines[i : i + 1]), change))}
        if found:
            text = "\n".join(found.get(i, line) for i, line in enumerate(lines))
            reply = {**parts, "reply": text}
            return Grammar(grammar.kind, text if grammar.kind == "lark" else json.dumps(reply))
    return None


def _changed_rule(line: str, change: Callable[[str, JsonObjectSchema], JsonObjectSchema]) -> str:
    """Return the rule of a lax schema that is changed; empty for any other line."""
    rule = RULE.match(line)
    schema: JsonObjectSchema = json.loads(rule["schema"]) if rule else {}
    guidance: dict[str, Any] = schema.get("x-guidance", {})
    if rule is None or not guidance.get("lenient"):
        return ""
    found = change(rule["name"], schema) | {"x-guidance": guidance}
    same = found == schema
    return "" if same else f"{rule['name']}: %json {json.dumps(found, ensure_ascii=False)}"


def _anything(rule: str, _: JsonObjectSchema) -> JsonObjectSchema:
    return {"type": "object"} if rule.startswith("args_") else {}


def _without_large(_: str, schema: JsonObjectSchema) -> JsonObjectSchema:
    def change(words: JsonObjectSchema) -> JsonObjectSchema:
        return {name: value for name, value in words.items() if name not in LARGE}

    return changed(schema, change)


def _without_patterns(_: str, schema: JsonObjectSchema, reason: str) -> JsonObjectSchema:
    def is_named(pattern: object) -> bool:
        return isinstance(pattern, str) and " ".join(pattern.split()) in reason

    def change(words: JsonObjectSchema) -> JsonObjectSchema:
        found = {
            name: value
            for name, value in words.items()
            if not (name == "pattern" and is_named(value))
        }
        if any(map(is_named, as_object(found.get("patternProperties")) or ())):
            del found["patternProperties"]
        return found

    return changed(schema, change)
