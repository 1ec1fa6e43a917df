"""Tokens to text, incrementally: no half characters, and nothing lost at the end."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from typing import Protocol

REPLACEMENT = "\ufffd"
Utf8 = getincrementaldecoder("utf-8")


class DecodeStream(Protocol):
    """One sequence's text state. The pieces joined are the text of all tokens at once."""

    def push(self, token: int) -> str:
        """Take one token; return the text that is certain now, maybe none."""
        ...

    def flush(self) -> str:
        """Return what is left when no more tokens come: U+FFFD for a character cut short."""
        ...

    def hides(self, token: int) -> bool:
        """Whether a token is no part of the text."""
        ...


class ByteStream:
    """For vocabularies of bytes: a table of them and an incremental UTF-8 decoder.

    With `strips` a space that the text begins with is left out, as the tokenizer has put it there.
    """

    def __init__(
        self, table: Mapping[int, bytes], hidden: frozenset[int], strips: bool = False
    ) -> None:
        self.table = table
        self.hidden = hidden
        self.strips = strips
        self.utf8 = Utf8(errors="replace")

    def push(self, token: int) -> str:
        """Take one token; return the characters it completes."""
        if token in self.hidden:
            return ""
        return self._stripped(self.utf8.decode(self.table.get(token, b"")))

    def flush(self) -> str:
        """Return U+FFFD where the tokens ended inside a character."""
        return self._stripped(self.utf8.decode(b"", final=True))

    def hides(self, token: int) -> bool:
        """Whether a token is no part of the text."""
        return token in self.hidden

    def _stripped(self, text: str) -> str:
        if not (self.strips and text):
            return text
        self.strips = False
        return text.removeprefix(" ")


class WindowStream:
    """For any other vocabulary: decode a short window twice, and send what the end added.

        tokens   ... | context | pending |
                     ^ text of both, less the text of the context, is new

    The context keeps decoders honest that treat a text's first token apart.
    """

    def __init__(
        self, decode: Callable[[list[int]], str], hidden: frozenset[int], context: list[int]
    ) -> None:
        self.decode = decode
        self.hidden = hidden
        self.context = context
        self.pending: list[int] = []

    def push(self, token: int) -> str:
        """Take one token; hold back a text that ends inside a character."""
        if token in self.hidden:
            return ""
        self.pending.append(token)
        text = self._new_text()
        if not text or text.endswith(REPLACEMENT):
            return ""
        self.context, self.pending = self.pending, []
        return text

    def flush(self) -> str:
        """Return what was held back."""
        text = self._new_text()
        self.context, self.pending = self.pending, []
        return text

    def hides(self, token: int) -> bool:
        """Whether a token is no part of the text."""
        return token in self.hidden

    def _new_text(self) -> str:
        known = self.decode(self.context) if self.context else ""
        return self.decode(self.context + self.pending)[len(known) :]


def byte_alphabet() -> dict[str, int]:
    """Return GPT-2's printable stand-in for each byte, inverted.

    Printable Latin-1 stands for itself; the other bytes, in order, for U+0100 onwards.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}
