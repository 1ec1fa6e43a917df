"""Arguments whose names are bare at every depth, and whose strings stand between tokens.

    city:<|"|>Köln<|"|>,days:[1,2],now:true

Nothing is escaped in such a string: it goes on to its mark.
"""

import json
from collections.abc import Iterable
from typing import Any, cast

from draftwerk.speculative.replies.literals import overlap

WORDS = {"None": "null", "True": "true", "False": "false"}
SIGNS = {",": ", ", ":": ": "}
ENDS = ",:{}[]<"
"""What ends a name, or a value that is no string; the last may begin a mark."""


def in_order(names: Iterable[str]) -> list[str]:
    """Return names as templates sort them."""
    return sorted(names, key=str.lower)


def written_bare(value: Any, quote: str, python_words: bool) -> str:
    """Return a value as calls hold it; nothing is `None` with `python_words`, else `null`."""
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, list):
        items = cast(list[Any], value)
        return f"[{','.join(written_bare(each, quote, python_words) for each in items)}]"
    if isinstance(value, dict):
        named = cast(dict[str, Any], value)
        pairs = (
            f"{name}:{written_bare(named[name], quote, python_words)}" for name in in_order(named)
        )
        return f"{{{','.join(pairs)}}}"
    return "None" if value is None and python_words else json.dumps(value)


class BareScanner:
    """Turns such arguments into JSON as they come; the brace before them was read already."""

    def __init__(self, quote: str) -> None:
        self.over = False
        self._quote = quote
        self._in_string = False
        self._depth = 0

    def push(self, held: str) -> tuple[str, str]:
        """Take in text; return the JSON that became certain, and what is not consumed yet."""
        out: list[str] = []
        if not self._depth:
            out.append("{")
            self._depth = 1
        length = -1
        while held and length and not self.over:
            length = self._string(held, out) if self._in_string else self._step(held, out)
            held = held[length:]
        return "".join(out), held

    def _string(self, held: str, out: list[str]) -> int:
        """Read on in a string; returns the length of what was read."""
        at = held.find(self._quote)
        ready = held[:at] if at >= 0 else held[: len(held) - overlap(held, self._quote)]
        out.append(json.dumps(ready, ensure_ascii=False)[1:-1])
        if at < 0:
            return len(ready)
        out.append('"')
        self._in_string = False
        return at + len(self._quote)

    def _step(self, held: str, out: list[str]) -> int:
        """Read a sign or a word, or the beginning of a string; returns its length, 0 to wait."""
        if held.startswith(self._quote):
            out.append('"')
            self._in_string = True
            return len(self._quote)
        if self._quote.startswith(held):
            return 0
        first = held[0]
        if first in ENDS:
            return self._sign(first, out)
        length = next((at for at, each in enumerate(held) if each in ENDS), 0)
        if word := held[:length].strip():
            is_name = held[length] == ":"
            out.append(json.dumps(word) if is_name else WORDS.get(word, word))
        return length

    def _sign(self, sign: str, out: list[str]) -> int:
        self._depth += (sign in "{[") - (sign in "}]")
        out.append(SIGNS.get(sign, sign) if sign != "<" else "")
        self.over = self._depth == 0
        return 0 if self.over else 1
