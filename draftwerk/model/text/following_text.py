"""Tokens of a text that follows another one: without the space that a text's beginning gets.

SentencePiece's vocabularies put a space before a text, and so do some byte-level ones. A piece of a
conversation that is encoded alone begins no text, unless it begins with a token that is matched
whole, behind which the tokenizer itself decides.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial

from tokenizers import Tokenizer

from draftwerk.model.text.prefix_space import without_prefix
from draftwerk.model.text.vocabulary_text import encoded


class FollowingText:
    """A tokenizer of pieces; safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._whole = tokenizer
        self._bare = without_prefix(tokenizer)
        added = tokenizer.get_added_tokens_decoder().values()
        names = sorted((each.content for each in added), key=len, reverse=True)
        matched = [] if tokenizer.encode_special_tokens else names
        self._added = re.compile("|".join(map(re.escape, matched)) or r"(?!)")

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text that stands behind another."""
        return self.joined_tokens([text], partial(encoded, self._whole), follows=True)

    def joined_tokens(
        self, pieces: Iterable[str], whole: Callable[[str], list[int]], follows: bool
    ) -> list[int]:
        """Return the tokens of pieces of one text; `whole` encodes one that begins a text.

        `follows` if the first stands behind another text.
        """
        tokens: list[int] = []
        for number, piece in enumerate(pieces):
            head, rest = self.cut(piece) if follows or number else ("", piece)
            tokens += encoded(self._bare, head) if self._bare and head else []
            tokens += whole(rest) if rest else []
        return tokens

    def cut(self, text: str) -> tuple[str, str]:
        """Return what comes before the first token that is matched whole, and the rest.

        All is the rest where no space is put before a text.
        """
        if self._bare is None:
            return "", text
        found = self._added.search(text)
        at = len(text) if found is None else found.start()
        return text[:at], text[at:]
