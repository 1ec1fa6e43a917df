"""Prompt lookup: what followed the last occurrence of the latest tokens will follow again.

Saxena, "Prompt lookup decoding" (2023); here over prompt and output, longest n-gram first.
"""

from speculative.rounds import Draft, chain

NGRAM_SIZES = (4, 3, 2)
"""Longest first: a longer match is a better guess."""


class NgramText:
    """One sequence's text, indexed by its n-grams as it grows."""

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens: list[int] = []
        self._follower: dict[
            tuple[int, ...], int
        ] = {}  # n-gram -> position after its last occurrence
        self.extend(tokens)

    def extend(self, tokens: tuple[int, ...]) -> None:
        """Append committed tokens; about 1 us each."""
        text, follower = self._tokens, self._follower
        for token in tokens:
            # The n-grams that end just before this token are complete, and now have a follower.
            end = len(text)
            for size in NGRAM_SIZES:
                if end >= size:
                    follower[tuple(text[end - size :])] = end
            text.append(token)

    def propose(self, length: int) -> Draft:
        """Return up to `length` tokens that followed the longest known suffix."""
        text = self._tokens
        for size in NGRAM_SIZES:
            start = self._follower.get(tuple(text[-size:])) if len(text) >= size else None
            if start is not None:
                return chain(tuple(self._continuation(start, length)), "ngram")
        return chain((), "ngram")

    def _continuation(self, start: int, length: int) -> list[int]:
        """Copy from `start`; past the end of the text the copy reads itself, so loops unroll."""
        period = len(self._tokens) - start
        return [self._tokens[start + i % period] for i in range(length)]
