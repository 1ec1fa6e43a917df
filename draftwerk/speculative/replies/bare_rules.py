"""A grammar's rules for values whose names are bare and whose strings stand between tokens."""

from collections.abc import Callable, Mapping
from typing import Any

from draftwerk.speculative.replies.argument_schemas import (
    BadSchema,
    JsonObjectSchema,
    as_object,
    is_bare_string,
    json_rule,
)
from draftwerk.speculative.replies.bare_arguments import ENDS, written_bare
from draftwerk.speculative.replies.formats import CallFormat
from draftwerk.speculative.replies.literals import literal

KEYS = {
    "array": frozenset(("type", "items", "minItems", "maxItems")),
    "object": frozenset(("type", "properties", "required", "additionalProperties")),
}
"""What is obeyed of a schema of each type."""
LISTED = frozenset(("type", "enum", "const"))
BARE_ARRAY = 'bare_array: "[" (bare_any ("," bare_any)*)? "]"'
SCALARS = ("integer", "number", "boolean")
NOTHING = '("null" | "None")'
ListedRule = Callable[[CallFormat, str, JsonObjectSchema], str]
"""Writes the rules of an object's names and values."""
StringRule = Callable[[str, str, JsonObjectSchema], str]
"""Writes the rule of a string up to what closes it, and that."""


class BareRules:
    """Writes rules to `lines`. Raises BadSchema for what such values have no way to obey."""

    def __init__(
        self,
        lines: list[str],
        specials: Mapping[str, int],
        listed: ListedRule,
        string: StringRule,
    ) -> None:
        self._lines = lines
        self._specials = specials
        self._listed = listed
        self._string_to = string

    def value(self, calls: CallFormat, index: str, schema: Any) -> str:
        """Return the rule of one value."""
        words = as_object(schema)
        if not words:
            return self._anything(calls)
        kind = words.get("type")
        if is_bare_string(schema):
            return self._string(calls, index, words)
        if isinstance(kind, list):
            return self._one_of(calls, index, [{**words, "type": one} for one in _items(kind)])
        if words.keys() in ({"anyOf"}, {"oneOf"}):
            return self._one_of(calls, index, _items(*words.values()))
        if words.keys() <= LISTED and not words.keys() <= {"type"}:
            return self._listed_values(calls, words)
        if kind == "null":
            return NOTHING
        if kind in SCALARS:
            self._lines.append(f"bare_{index}: {json_rule(schema, {})}")
            return f"bare_{index}"
        odd = sorted(words.keys() - KEYS.get(str(kind), frozenset()))
        if odd:
            raise BadSchema(f"has {odd[0]!r}, which this model's format has no way to obey")
        build = self._array if kind == "array" else self._object
        return build(calls, index, words)

    def _one_of(self, calls: CallFormat, index: str, schemas: list[Any]) -> str:
        rules = (self.value(calls, f"{index}_{n}", one) for n, one in enumerate(schemas))
        return f"({' | '.join(rules)})"

    def _listed_values(self, calls: CallFormat, words: JsonObjectSchema) -> str:
        form = calls.arguments
        values = _items(words["enum"]) if "enum" in words else [words["const"]]
        texts = (written_bare(one, form.quote, form.python_words) for one in values)
        return f"({' | '.join(literal(text, self._specials) for text in texts)})"

    def _string(self, calls: CallFormat, index: str, words: JsonObjectSchema) -> str:
        quote = calls.arguments.quote
        return f"{literal(quote, self._specials)} {self._string_to(quote, index, words)}"

    def _array(self, calls: CallFormat, index: str, words: JsonObjectSchema) -> str:
        item = self.value(calls, f"{index}_0", words.get("items", True))
        least, most = words.get("minItems", 0), words.get("maxItems")
        if most == 0:
            return '"[" "]"'
        more = f'("," {item}){{{max(least - 1, 0)},{most - 1 if most else ""}}}'
        return f'"[" {item} {more} "]"' if least else f'"[" ({item} {more})? "]"'

    def _object(self, calls: CallFormat, index: str, words: JsonObjectSchema) -> str:
        if not words.get("properties") and words.get("additionalProperties") is not False:
            self._anything(calls)
            return "bare_object"
        return f'"{{" {self._listed(calls, index, words)} "}}"'

    def _anything(self, calls: CallFormat) -> str:
        """Return the rule of any value at all, which is written once."""
        if BARE_ARRAY not in self._lines:
            string = self._string(calls, "00", {})
            self._lines += [
                f'bare_any: BARE_NUMBER | "true" | "false" | {NOTHING} | {string} | bare_array'
                " | bare_object",
                BARE_ARRAY,
                'bare_object: "{" (bare_pair ("," bare_pair)*)? "}"',
                'bare_pair: BARE_NAME ":" bare_any',
                r"BARE_NAME: /[^,:{}\[\]<\s]+/",
                r"BARE_NUMBER: /-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?/",
            ]
        return "bare_any"


def is_bare_name(name: str) -> bool:
    """Whether an argument's name can be told from what is around it."""
    return bool(name) and name == name.strip() and not any(each in name for each in ENDS)


def _items(value: Any) -> list[Any]:
    return list(value)
