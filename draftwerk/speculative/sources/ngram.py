"""Prompt lookup: what followed the best match of the latest tokens will follow again.

Saxena, "Prompt lookup decoding" (2023); here over prompt and output, the longest match first, and
the newest of those.
"""

from draftwerk.speculative.sources.acceptance import NGRAM, kind
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.tree import DraftTree


class NgramSource:
    """One chain from the text's own past."""

    __slots__ = ("_text",)

    def __init__(self, text: SequenceText) -> None:
        self._text = text

    def learn(self, new_token_ids: tuple[int, ...]) -> None:
        """Nothing: the text is the memory."""

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Copy from the best match; past the end the copy reads itself, so loops unroll."""
        matches = self._text.matches()
        if not matches:
            return
        position, level = best(matches)
        tokens = self._text.tokens
        copy = tokens[position : position + depth_max]
        period = len(copy)
        while len(copy) < depth_max:
            copy.extend(copy[: min(period, depth_max - len(copy))])
        tree.add_chain(-1, copy, kind(NGRAM, level))


def best(matches: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the longest match, the newest of equals."""
    found = matches[0]
    for match in matches:
        if match[1] > found[1]:
            found = match
    return found
