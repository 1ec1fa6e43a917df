"""Control tokens in what clients write, taken as text; a template's own stay tokens.

A mark goes into each name of a control token before the conversation is rendered. The rendered text
is cut at the marks, and its pieces are encoded one by one: none of them has the name whole.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

MARKS = range(0xE010, 0xE110)
"""Characters for private use, other than those that stand for known answers."""


class ControlGuard(Struct, frozen=True):
    """What keeps some control tokens out of one conversation; without names it does nothing."""

    names: tuple[str, ...] = ()
    mark: str = ""

    def guarded(self, value: Any) -> Any:
        """Return a value with a mark in each name, in all of its strings."""
        return _mapped(value, self._marked) if self.names else value

    def rendered(self, text: str) -> str:
        """Return a rendered text with the marks that JSON has escaped as they were."""
        return text.replace(_escaped(self.mark), self.mark) if self.mark else text

    def bare(self, text: str) -> str:
        """Return a text without marks."""
        return text.replace(self.mark, "") if self.mark else text

    def pieces(self, text: str) -> list[str]:
        """Return what is to be encoded one by one."""
        pieces = text.split(self.mark) if self.mark else [text]
        return [piece for piece in pieces if piece]

    def _marked(self, text: str) -> str:
        starts = sorted({at for name in self.names for at in _places(text, name)})
        ends = [0, *(start + 1 for start in starts), len(text)]
        return self.mark.join(text[start:stop] for start, stop in pairwise(ends))


NO_GUARD = ControlGuard()


def guard_of(names: Iterable[str], values: Sequence[Any]) -> ControlGuard:
    """Return the guard of a conversation. Raises ValueError where its text leaves no mark."""
    texts = "\0".join(text for value in values for text in _strings(value))
    found = tuple(name for name in names if len(name) > 1 and name in texts)
    if not found:
        return NO_GUARD
    for code in MARKS:
        mark = chr(code)
        if mark not in texts and _escaped(mark) not in texts:
            return ControlGuard(found, mark)
    raise ValueError("the text has control tokens, and too many characters for private use")


def _escaped(mark: str) -> str:
    return f"\\u{ord(mark):04x}"


def _places(text: str, name: str) -> Iterator[int]:
    """Yield where a name begins, overlapping ones too."""
    at = text.find(name)
    while at >= 0:
        yield at
        at = text.find(name, at + 1)


def _strings(value: Any) -> Iterator[str]:
    """Yield every string in a value of plain JSON, keys among them."""
    match value:
        case str():
            yield value
        case Mapping():
            for key, each in value.items():
                yield from _strings(key)
                yield from _strings(each)
        case list() | tuple():
            for each in value:
                yield from _strings(each)
        case _:
            pass


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {_mapped(key, change): _mapped(each, change) for key, each in value.items()}
        case list() | tuple():
            return [_mapped(each, change) for each in value]
        case _:
            return value
