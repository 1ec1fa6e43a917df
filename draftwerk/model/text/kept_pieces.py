"""Tokens of conversations that grow: what was encoded before is not encoded again.

A tokenizer cuts a text at control tokens before all else, so that a piece which begins with one has
the same tokens whatever stands before and behind it. Pieces are kept by their text.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock

from tokenizers import Tokenizer

PIECE_MIN = 256
"""Characters of a piece, but for the last: shorter ones are encoded sooner than looked up."""
CHARACTERS_MAX = 2**22
"""The most characters of all pieces; the least lately used go first."""


class KeptPieces:
    """A tokenizer's tokens of texts, piece by piece; safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, encode: Callable[[str], list[int]]) -> None:
        """`encode` returns the tokens of a text that a template has completed."""
        names = cut_names(tokenizer)
        self._cut = re.compile("|".join(map(re.escape, names))) if names else None
        self._encode = encode
        self._kept = OrderedDict[str, "array[int]"]()
        self._characters = 0
        self._lock = Lock()

    def tokens(self, text: str) -> list[int]:
        """Return what `encode` returns of it."""
        return [token for piece in self._pieces(text) for token in self._piece_tokens(piece)]

    def _pieces(self, text: str) -> Iterator[str]:
        start = 0
        for found in () if self._cut is None else self._cut.finditer(text):
            if found.start() - start >= PIECE_MIN:
                yield text[start : found.start()]
                start = found.start()
        yield text[start:]

    def _piece_tokens(self, piece: str) -> "array[int]":
        with self._lock:
            if piece in self._kept:
                self._kept.move_to_end(piece)
                return self._kept[piece]
        tokens = array("I", self._encode(piece))
        with self._lock:
            if piece not in self._kept:
                self._kept[piece] = tokens
                self._characters += len(piece)
            while self._characters > CHARACTERS_MAX:
                oldest, _ = self._kept.popitem(last=False)
                self._characters -= len(oldest)
        return tokens


def cut_names(tokenizer: Tokenizer) -> list[str]:
    """Return the names of the tokens that every text is cut before, whatever is around them.

    Those that take in spaces or ask for the ends of a word are none, nor those that may be a part
    of another's name, or begin within one.
    """
    tokens = tokenizer.get_added_tokens_decoder().values()
    names = [each.content for each in tokens]
    return [
        each.content
        for each in tokens
        if each.special
        and not (each.normalized or each.lstrip or each.single_word)
        and not any(_hides(other, each.content) for other in names if other != each.content)
    ]


def _hides(other: str, name: str) -> bool:
    """Whether a name may begin within another that begins before it, or be a part of it."""
    ends = range(1, min(len(name), len(other) + 1))
    return name in other or any(other.endswith(name[:end]) for end in ends)
