"""One grammar over a whole reply: reasoning, then text or calls of tools.

    auto       (open reasoning close)?  text?  calls?
    required   (open reasoning close)?  calls
    none       (open reasoning close)?  text?

The trigger of a call never stands in text, so that the parser and the grammar agree on every reply.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from draftwerk.speculative.replies.argument_schemas import (
    BadSchema,
    JsonObjectSchema,
    as_object,
    definitions_of,
    is_bare_string,
    json_rule,
    listed_properties,
)
from draftwerk.speculative.replies.formats import CALLS_MAX, CallFormat, ReplyFormat
from draftwerk.speculative.sampling.params import Grammar

CallMode = Literal["auto", "required", "none"]
ANY = "(?s:.*)"
META = frozenset("\\.+*?()|[]{}^$/-&~#")
"""Characters with a meaning of their own in a regular expression."""


class ToolFunction(Struct, frozen=True):
    """A function that may be called."""

    name: str
    parameters: JsonObjectSchema
    """The JSON schema of its arguments, without annotations."""


class ReplyRules(Struct, frozen=True):
    """What one reply must be."""

    form: ReplyFormat
    mode: CallMode = "auto"
    functions: tuple[ToolFunction, ...] = ()
    """Those that may be called."""
    parallel: bool = True
    """Whether one reply may hold several calls."""
    text: Grammar | None = None
    """What text must be; None for any."""
    reasoning_max: int | None = None
    """Tokens of reasoning, after which it is ended."""
    reasoning_required: bool = False


def raw_strings(form: CallFormat, functions: Sequence[ToolFunction]) -> tuple[tuple[str, str], ...]:
    """Return the arguments that an XML-like format writes without quotes."""
    if form.shape != "xml":
        return ()
    found: list[tuple[str, str]] = []
    for each in functions:
        properties: JsonObjectSchema = each.parameters.get("properties") or {}
        found += [(each.name, name) for name in properties if is_bare_string(properties[name])]
    return tuple(found)


def reply_grammar(rules: ReplyRules) -> Grammar:
    """Return the grammar of a reply. Raises BadSchema for arguments that cannot be enforced."""
    return _Rules(rules).grammar()


class _Rules:
    """The rules of one grammar as they are written down."""

    def __init__(self, rules: ReplyRules) -> None:
        self.rules = rules
        self.form = rules.form
        self.lines: list[str] = []
        self.specials = dict(
            each
            for part in (rules.form.calls, rules.form.reasoning)
            if part is not None
            for each in part.specials
        )

    def grammar(self) -> Grammar:
        start = f"{self._reasoning()} body"
        self.lines.insert(0, f"start: {start}")
        self.lines.append(f"body: {self._body()}")
        text = "\n".join(self.lines) + "\n"
        if self.rules.text is None:
            return Grammar("lark", text)
        inner = {"kind": self.rules.text.kind, "text": self.rules.text.text}
        return Grammar("reply", json.dumps({"reply": text, "text": inner}))

    # --- parts of a reply -----------------------------------------------------------------------

    def _reasoning(self) -> str:
        reasoning = self.form.reasoning
        if reasoning is None:
            return ""
        close = reasoning.close
        limit = self.rules.reasoning_max
        if close in self.specials:
            bound = "" if limit is None else f"[max_tokens={limit}]"
            self.lines.append(f"reasoning{bound}: REASONING")
            self.lines.append(f"REASONING: {_without(close)}")
            inner = f"reasoning {self.literal(close)}"
        else:
            self.lines.append(f"reasoning[lazy]: /{ANY}{escaped_pattern(close)}/")
            inner = "reasoning"
        # Where text may be anything it has the white space behind reasoning.
        gap = " GAP" if self.rules.mode == "required" or self.rules.text is not None else ""
        if gap:
            self.lines.append("GAP: /\\n{0,2}/")
        if self.form.reasoning_open:
            return inner + gap
        whole = f"{self.literal(reasoning.open)} {inner}{gap}"
        return whole if self.rules.reasoning_required else f"({whole})?"

    def _body(self) -> str:
        calls, rules = self.form.calls, self.rules
        if calls is None or rules.mode == "none" or not rules.functions:
            self._plain_text(calls)
            return "text?" if rules.text is None else "text"
        self._calls(calls)
        if rules.mode == "required":
            return "calls"
        if rules.text is not None:
            self.lines.append("text: @text")
            return "text | calls"
        if calls.first_only:
            self.lines.append(f"text: /\\s*[^\\s{escaped_pattern(calls.trigger[0])}]{ANY}/")
            return "(text | calls)?"
        if calls.trigger in self.specials:
            self._plain_text(calls)
            return "text? calls?"
        self._plain_text(calls)
        self.lines.append(f"opened[lazy]: /{ANY}{escaped_pattern(calls.trigger)}/")
        rest = self.literal(calls.begin[len(calls.trigger) :])
        self.lines.append(f"late_calls: opened {rest} {self._call_list(calls)}")
        return "(text | late_calls)?"

    def _plain_text(self, calls: CallFormat | None) -> None:
        if self.rules.text is not None:
            self.lines.append("text: @text")
            return
        self.lines.append("text: TEXT")
        barred = calls is not None and not calls.first_only
        self.lines.append("TEXT: " + (_without(calls.trigger) if barred and calls else f"/{ANY}/"))

    # --- calls ------------------------------------------------------------------------------------

    def _calls(self, calls: CallFormat) -> None:
        for index, function in enumerate(self.rules.functions):
            self._function(calls, index, function)
        names = " | ".join(f"call_{index}" for index in range(len(self.rules.functions)))
        if calls.id_close:
            self.lines.append("ID: /[a-zA-Z0-9]{9}/")
            names = f"({names}) ID {self.literal(calls.id_close)}"
        self.lines.append(f"call: {names}")
        self.lines.append(f"calls: {self.literal(calls.begin)} {self._call_list(calls)}")

    def _call_list(self, calls: CallFormat) -> str:
        more = ""
        if self.rules.parallel and calls.again is not None:
            more = f" ({self.literal(calls.again)} call){{0,{CALLS_MAX - 1}}}"
        return f"call{more} {self.literal(calls.end)}"

    def _function(self, calls: CallFormat, index: int, function: ToolFunction) -> None:
        head = self.literal(function.name + calls.middle)
        if calls.shape == "json":
            self.lines.append(f"args_{index}: {json_rule(function.parameters, {})}")
            inner = f"args_{index}"
        else:
            inner = self._listed(calls, index, function)
        self.lines.append(f"call_{index}: {head} {inner} {self.literal(calls.close)}")

    def _listed(self, calls: CallFormat, index: int, function: ToolFunction) -> str:
        """Write rules for arguments that come one by one, in the schema's order.

        `first_I_N` stands before any argument, `more_I_N` behind one.
        """
        properties, required = listed_properties(function.parameters)
        if odd := next((name for name in properties if not _is_writable(calls, name)), None):
            raise BadSchema(f"has a property {odd[:40]!r}, which this model's format cannot name")
        definitions = definitions_of(function.parameters)
        form = calls.arguments
        count = len(properties)
        for number, (name, schema) in enumerate(properties.items()):
            value = self._value(calls, f"{index}_{number}", schema, definitions)
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

    def _value(
        self, calls: CallFormat, index: str, schema: Any, definitions: JsonObjectSchema
    ) -> str:
        """Return the rules' text for one value and what closes it."""
        close = calls.arguments.close
        if is_bare_string(schema):
            if calls.shape == "python":
                return f"{self._python_string(calls, index, schema)} {self.literal(close)}"
            return self._raw_string(close, index, schema)
        words = _scalar_words(schema) if calls.shape == "python" else None
        if words is not None:
            self.lines.append(f"value_{index}: {words}")
        else:
            self.lines.append(f"value_{index}: {json_rule(schema, definitions)}")
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
            texts = (json.dumps(each, ensure_ascii=False)[1:-1] for each in listed)
            if quote == "'":
                texts = (each.replace('\\"', '"').replace("'", "\\'") for each in texts)
            words = " | ".join(self.literal(quote + each + quote) for each in texts)
            self.lines.append(f"value_{index}: {words}")
            return f"value_{index}"
        inner = rf"([^{quote}\\\x00-\x1f]|\\[{quote}\"\\\/bfnrt]|\\u[0-9a-fA-F]{{4}})"
        if quote == '"':
            inner = r'([^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9a-fA-F]{4})'
        self.lines.append(f"value_{index}: /{quote}{_counted(inner, schema)}{quote}/")
        return f"value_{index}"

    def literal(self, text: str) -> str:
        """Return a literal: its special tokens by number, the rest as strings."""
        parts: list[str] = []
        while text:
            found = [
                (at, -len(name), name) for name in self.specials if (at := text.find(name)) >= 0
            ]
            if not found:
                parts.append(json.dumps(text, ensure_ascii=False))
                break
            at, _, name = min(found)
            if at:
                parts.append(json.dumps(text[:at], ensure_ascii=False))
            parts.append(f"<[{self.specials[name]}]>")
            text = text[at + len(name) :]
        return " ".join(parts)


def _is_writable(calls: CallFormat, name: str) -> bool:
    """Whether a format can name an argument so that the name is read again."""
    if calls.shape == "python":
        return name.isidentifier()
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


def _without(mark: str) -> str:
    """Return the pattern of texts without `mark` in them."""
    return f"/{ANY}/ & ~/{ANY}{escaped_pattern(mark)}{ANY}/"


def escaped_pattern(text: str) -> str:
    """Return a text as part of a regular expression between slashes."""
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "".join(named.get(each, "\\" + each if each in META else each) for each in text)
