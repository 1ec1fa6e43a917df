"""A grammar's rules for arguments that are written one by one, XML-like or Python-like."""

from collections.abc import Mapping
from typing import Any

from draftwerk.speculative.replies.argument_schemas import (
    BadSchema,
    JsonObjectSchema,
    as_object,
    definitions_of,
    is_bare_string,
    json_rule,
    listed_properties,
)
from draftwerk.speculative.replies.bare_arguments import in_order
from draftwerk.speculative.replies.bare_rules import BareRules, is_bare_name
from draftwerk.speculative.replies.formats import CallFormat, quotable
from draftwerk.speculative.replies.literals import ANY, escaped_pattern, literal


class ArgumentRules:
    """Writes rules to `lines`; raises BadSchema for arguments that a format cannot hold."""

    def __init__(self, lines: list[str], specials: Mapping[str, int]) -> None:
        self.lines = lines
        self.specials = specials
        self.strict = True
        """Whether the function at hand keeps to every word of its schema."""
        self.bare = BareRules(lines, specials, self.listed, self._raw_string)

    def literal(self, text: str) -> str:
        return literal(text, self.specials)

    def listed(self, calls: CallFormat, index: str, parameters: JsonObjectSchema) -> str:
        """Write rules for arguments that come one by one, in the schema's order.

        `first_I_N` stands before any argument, `more_I_N` behind one.
        """
        properties, required = listed_properties(parameters, self.strict)
        if not self.strict:
            properties = {n: properties[n] for n in properties if _is_writable(calls, n)}
        if odd := next((name for name in properties if not _is_writable(calls, name)), None):
            raise BadSchema(f"has a property {odd[:40]!r}, which this model's format cannot name")
        if calls.shape == "bare":  # as templates sort them
            properties = {name: properties[name] for name in in_order(properties)}
        definitions = definitions_of(parameters)
        form = calls.arguments
        count = len(properties)
        for number, (name, schema) in enumerate(properties.items()):
            value = self._good_value(calls, f"{index}_{number}", schema, definitions)
            self.lines.append(
                f"arg_{index}_{number}: {self.literal(form.open + name + form.middle)} {value}"
            )
            this, then = f"arg_{index}_{number}", f"more_{index}_{number + 1}"
            skips = name not in required
            self.lines.append(
                f"first_{index}_{number}: {this} {then}"
                + (f" | first_{index}_{number + 1}" if skips else "")
            )
            separator = self.literal(form.separator)
            self.lines.append(
                f"more_{index}_{number}: {separator} {this} {then}"
                + (f" | {then}" if skips else "")
            )
        self.lines.append(f'first_{index}_{count}: ""')
        self.lines.append(f'more_{index}_{count}: ""')
        return f"first_{index}_0"

    def _good_value(
        self, calls: CallFormat, index: str, schema: Any, definitions: JsonObjectSchema
    ) -> str:
        """Return the rules' text for a value; any JSON where a lax schema has no way to be kept."""
        count = len(self.lines)
        try:
            return self._value(calls, index, schema, definitions)
        except BadSchema:
            if self.strict:
                raise
        del self.lines[count:]
        return self._value(calls, index, {}, {})

    def _value(
        self, calls: CallFormat, index: str, schema: Any, definitions: JsonObjectSchema
    ) -> str:
        """Return the rules' text for one value and what closes it."""
        close = calls.arguments.close
        if calls.shape == "bare":
            return self.bare.value(calls, index, schema)
        if is_bare_string(schema):
            if calls.shape == "python":
                return f"{self._python_string(calls, index, schema)} {self.literal(close)}"
            return self._raw_string(close, index, schema)
        words = _scalar_words(schema) if calls.arguments.python_words else None
        if words is not None:
            self.lines.append(f"value_{index}: {words}")
        else:
            self.lines.append(f"value_{index}: {json_rule(schema, definitions, self.strict)}")
        return f"value_{index} {self.literal(close)}"

    def _raw_string(self, close: str, index: str, schema: JsonObjectSchema) -> str:
        listed = _listed_values(schema)
        if listed is not None:
            if any((each + close).find(close) < len(each) for each in listed):
                raise BadSchema("lists a value that holds the model's own end of an argument")
            self.lines.append(f"value_{index}: " + " | ".join(map(self.literal, listed)))
            return f"value_{index} {self.literal(close)}"
        some = _counted("(?s:.)", schema)
        mark = next((each for each in self.specials if each in close), "")
        if mark:
            if not close.startswith(mark):
                raise BadSchema("has strings, which this model's format of calls cannot bound")
            self.lines.append(f"value_{index}: STRING_{index}")
            self.lines.append(f"STRING_{index}: /{some}/ & ~/{ANY}{escaped_pattern(mark)}{ANY}/")
            return f"value_{index} {self.literal(close)}"
        # One lexeme with its end: a greedy one would swallow the line break before the end.
        self.lines.append(f"value_{index}[lazy]: /{some}{escaped_pattern(close)}/")
        return f"value_{index}"

    def _python_string(self, calls: CallFormat, index: str, schema: JsonObjectSchema) -> str:
        quote = calls.arguments.quote or '"'
        listed = _listed_values(schema)
        if listed is not None:
            texts = (quote + quotable(each, quote) + quote for each in listed)
            words = " | ".join(map(self.literal, texts))
            self.lines.append(f"value_{index}: {words}")
            return f"value_{index}"
        inner = rf"([^{quote}\\\x00-\x1f]|\\[{quote}\"\\\/bfnrt]|\\u[0-9a-fA-F]{{4}})"
        if quote == '"':
            inner = r'([^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9a-fA-F]{4})'
        self.lines.append(f"value_{index}: /{quote}{_counted(inner, schema)}{quote}/")
        return f"value_{index}"


def _is_writable(calls: CallFormat, name: str) -> bool:
    """Whether a format can name an argument so that the name is read again."""
    if calls.shape == "python":
        return name.isidentifier()
    if calls.shape == "bare":
        return is_bare_name(name)
    each = calls.arguments
    return bool(name) and not any(
        mark.strip() in name for mark in (each.open, each.middle, each.close) if mark.strip()
    )


def _listed_values(schema: JsonObjectSchema) -> list[str] | None:
    """Return the strings that a bare string may be, None for any."""
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if "enum" in schema else None


def _scalar_words(schema: Any) -> str | None:
    """Return Python's words for a truth value or for nothing, None for any other type."""
    words = as_object(schema) or {}
    kind = words.get("type") if len(words) == 1 else None
    return {"boolean": '"True" | "False"', "null": '"None"'}.get(str(kind))


def _counted(pattern: str, schema: JsonObjectSchema) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    return f"{pattern}*" if not least and most == "" else f"{pattern}{{{least},{most}}}"
