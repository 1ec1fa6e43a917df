"""The arguments of one call, read as they come: whatever the format, JSON comes out.

A scanner takes text and returns (JSON so far, text not consumed). Once `over`, the rest begins with
what closes the call.
"""

import json
from ast import literal_eval
from dataclasses import dataclass
from typing import Protocol

from draftwerk.speculative.replies.bare_arguments import WORDS, BareScanner
from draftwerk.speculative.replies.formats import CallFormat
from draftwerk.speculative.replies.literals import overlap


class ArgumentScanner(Protocol):
    """Reads the arguments of one call."""

    over: bool

    def push(self, held: str) -> tuple[str, str]:
        """Take in text; return the JSON that became certain, and what is not consumed yet."""
        ...


def scanner_of(form: CallFormat, raw: frozenset[str]) -> ArgumentScanner:
    """Return the scanner of a format; `raw` names the arguments whose values are bare strings."""
    if form.shape == "json":
        return JsonScanner()
    if form.shape == "bare":
        return BareScanner(form.arguments.quote)
    return PythonScanner(form) if form.shape == "python" else XmlScanner(form, raw)


class JsonScanner:
    """One JSON object, passed on as it is."""

    def __init__(self) -> None:
        self.over = False
        self._place = JsonPlace()

    def push(self, held: str) -> tuple[str, str]:
        """Pass on text up to the end of the object."""
        for at, each in enumerate(held):
            self._place.read(each)
            if each in "}]" and not self._place.in_string and self._place.depth <= 0:
                self.over = True
                return held[: at + 1], held[at + 1 :]
        return held, ""


@dataclass(slots=True)
class JsonPlace:
    """Where a reader of JSON is, between two characters."""

    depth: int = 0
    """Brackets that are open."""
    in_string: bool = False
    escaped: bool = False

    def read(self, each: str) -> None:
        """Go on behind one character."""
        if self.in_string:
            self.in_string = each != '"' or self.escaped
            self.escaped = each == "\\" and not self.escaped
        else:
            self.in_string = each == '"'
            self.depth += (each in "{[") - (each in "}]")


class ListedScanner:
    """What both kinds of arguments that come one by one share: names, and reading on."""

    def __init__(self, form: CallFormat) -> None:
        self.over = False
        self._form = form
        self._state = "next"
        self._count = 0

    def push(self, held: str) -> tuple[str, str]:
        """Read as many names and values as are certain."""
        out: list[str] = []
        while not self.over:
            before = (held, self._state)
            held = self._step(held, out)
            if before == (held, self._state):
                break
        return "".join(out), held

    def _step(self, held: str, out: list[str]) -> str:
        """Read on in the present state; returns what is not consumed."""
        raise NotImplementedError

    def _name(self, held: str, out: list[str]) -> str:
        name, mark, rest = held.partition(self._form.arguments.middle)
        if not mark:
            return held
        out.append(("{" if self._count == 0 else ", ") + _quoted(name) + ": ")
        self._count += 1
        self._state = self._state_of_value(name, out)
        return rest

    def _state_of_value(self, name: str, out: list[str]) -> str:
        """Return the state in which the value of an argument is read; may open it."""
        return "value"

    def _end(self, out: list[str]) -> None:
        out.append("}" if self._count else "{}")
        self.over = True


class XmlScanner(ListedScanner):
    """Arguments that are one element each: `open` name `middle` value `close`."""

    def __init__(self, form: CallFormat, raw: frozenset[str]) -> None:
        super().__init__(form)
        self._raw = raw

    def _state_of_value(self, name: str, out: list[str]) -> str:
        if name not in self._raw:
            return "value"
        out.append('"')
        return "string"

    def _step(self, held: str, out: list[str]) -> str:
        each = self._form.arguments
        if self._state == "next":
            return self._next(held, out)
        if self._state == "name":
            return self._name(held, out)
        if self._state == "value":
            return self._json(held, out)
        at = held.find(each.close)
        ready = held[:at] if at >= 0 else held[: len(held) - overlap(held, each.close)]
        out.append(_quoted(ready)[1:-1])
        if at < 0:
            return held[len(ready) :]
        out.append('"')
        self._state = "next"
        return held[at + len(each.close) :]

    def _json(self, held: str, out: list[str]) -> str:
        """Read a value in JSON once it is whole: its strings may hold what closes it."""
        close = self._form.arguments.close
        length = _value_length(held, close)
        if length is None:
            return held
        out.append(_as_json(held[:length]))
        self._state = "next"
        return held[length + len(close) :]

    def _next(self, held: str, out: list[str]) -> str:
        opened, close = self._form.arguments.open, self._form.close
        if held.startswith(opened):
            self._state = "name"
            return held[len(opened) :]
        if held.startswith(close) or not (opened.startswith(held) or close.startswith(held)):
            self._end(out)
        return held


class PythonScanner(ListedScanner):
    """Arguments as of a call in Python: `name=value`, with strings in either kind of quotes."""

    def _step(self, held: str, out: list[str]) -> str:
        match self._state:
            case "next":
                return self._next(held, out)
            case "name":
                return self._name(held, out)
            case "string":
                return self._string(held, out)
            case _:
                return self._value(held, out)

    def _next(self, held: str, out: list[str]) -> str:
        separator, close = self._form.arguments.separator, self._form.close
        if not held:
            return held
        if held.startswith(close[:1]):
            self._end(out)
        elif self._count == 0:
            self._state = "name"
        elif held.startswith(separator):
            self._state = "name"
            return held[len(separator) :]
        return held

    def _value(self, held: str, out: list[str]) -> str:
        """Read a value that is no string in the format's quotes, once it is whole."""
        if not held:
            return held
        if held[0] == "'":
            out.append('"')
            self._state = "string"
            return held[1:]
        ends = (self._form.arguments.separator[:1], self._form.close[:1])
        length = _value_length(held, ends)
        if length is None:
            return held
        out.append(_as_json(held[:length]))
        self._state = "next"
        return held[length:]

    def _string(self, held: str, out: list[str]) -> str:
        at = 0
        while at < len(held):
            each = held[at]
            if each == "'":
                out.append('"')
                self._state = "next"
                return held[at + 1 :]
            if each == "\\":
                if at + 1 == len(held):
                    break
                pair = held[at : at + 2]
                out.append("'" if pair == "\\'" else pair)
                at += 2
                continue
            out.append('\\"' if each == '"' else _quoted(each)[1:-1])
            at += 1
        return held[at:]


def _value_length(held: str, ends: str | tuple[str, ...]) -> int | None:
    """Return where a JSON value ends: before one of `ends` outside of strings and brackets."""
    place = JsonPlace()
    for at, each in enumerate(held):
        if not (place.in_string or place.depth or each == '"') and held.startswith(ends, at):
            return at
        place.read(each)
    return None


def _as_json(value: str) -> str:
    """Return a value in JSON that is written in it, or in Python's words."""
    if value in WORDS:
        return WORDS[value]
    try:
        json.loads(value)
        return value
    except ValueError:
        pass
    try:
        return json.dumps(literal_eval(value.strip()), ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
