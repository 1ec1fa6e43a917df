"""Texts as grammars write them: literals, patterns of any text, of text without a mark; marks."""

import json
from collections.abc import Mapping

ANY = "(?s:.*)"
META = frozenset("\\.+*?()|[]{}^$/-&~#")
"""Characters with a meaning of their own in a regular expression."""


def literal(text: str, specials: Mapping[str, int]) -> str:
    """Return a literal of a grammar: its special tokens by number, the rest as strings."""
    parts: list[str] = []
    while text:
        found = [(at, -len(name), name) for name in specials if (at := text.find(name)) >= 0]
        if not found:
            parts.append(quoted(text))
            break
        at, _, name = min(found)
        if at:
            parts.append(quoted(text[:at]))
        parts.append(f"<[{specials[name]}]>")
        text = text[at + len(name) :]
    return " ".join(parts)


def quoted(text: str) -> str:
    """Return a text as a grammar's string: JSON's, which may hold DEL as it is, and Lark's not."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def without(mark: str) -> str:
    """Return the pattern of texts without `mark` in them."""
    return f"/{ANY}/ & ~/{ANY}{escaped_pattern(mark)}{ANY}/"


def escaped_pattern(text: str) -> str:
    """Return a text as part of a regular expression between slashes."""
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "".join(named.get(each, "\\" + each if each in META else each) for each in text)


def overlap(text: str, mark: str) -> int:
    """Return the length of the longest end of `text` that begins `mark` without completing it."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
