"""Grammars of replies without those lax schemas that the library finds no text for."""

import json
import re
from typing import Any

from draftwerk.speculative.replies.grammar import PLACE
from draftwerk.speculative.replies.schemas.closed_schemas import (
    JsonObjectSchema,
    as_object,
    changed,
)
from draftwerk.speculative.sampling.params import Grammar

RULE = re.compile(r"(?P<name>[a-z]+_[0-9_]+): %json (?P<schema>.*)")
"""The rule of a schema."""


def weaker(grammar: Grammar, reason: str) -> Grammar | None:
    """Return a reply's grammar without the fault that the library finds in a lax schema of it.

    A pattern that it names goes first, then all of the schema: that may be any JSON. None where
    the fault is elsewhere.
    """
    place = PLACE.search(reason)
    if place is None or grammar.kind not in ("lark", "reply"):
        return None
    parts = json.loads(grammar.text) if grammar.kind == "reply" else {"reply": grammar.text}
    lines = parts["reply"].split("\n")
    at = int(place[1]) - 1
    rule = RULE.match("".join(lines[at : at + 1]))
    found = None if rule is None else _weaker(rule["name"], json.loads(rule["schema"]), reason)
    if rule is None or found is None:
        return None
    lines[at] = f"{rule['name']}: %json {json.dumps(found, ensure_ascii=False)}"
    text = "\n".join(lines)
    if grammar.kind == "lark":
        return Grammar("lark", text)
    return Grammar("reply", json.dumps({**parts, "reply": text}))


def _weaker(rule: str, schema: JsonObjectSchema, reason: str) -> JsonObjectSchema | None:
    """Return a lax schema with less in it; None for a strict one, and where nothing is left."""
    guidance: dict[str, Any] = schema.get("x-guidance", {})
    if not guidance.get("lenient"):
        return None
    anything: JsonObjectSchema = {"type": "object"} if rule.startswith("args_") else {}
    fewer = _without_patterns(schema, " ".join(reason.split()))
    for found in (fewer, anything | {"x-guidance": guidance}):
        if found != schema:
            return found
    return None


def _without_patterns(schema: JsonObjectSchema, reason: str) -> JsonObjectSchema:
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
