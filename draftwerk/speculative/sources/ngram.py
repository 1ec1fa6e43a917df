"""Prompt lookup: what followed the best match of the latest tokens will follow again.

Saxena, "Prompt lookup decoding" (2023); here over prompt and output, the longest match first, and
the newest of those.
"""

from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.tree import DraftSource, DraftTree


class NgramSource(DraftSource):
    """One chain from the text's own past."""

    __slots__ = ("_text",)

    def __init__(self, number: int, text: SequenceText) -> None:
        super().__init__(number)
        self._text = text

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Copy from the best match; past the end the copy reads itself, so loops unroll."""
        match = self._text.best_match()
        if match is None:
            return
        position, level = match
        tokens = self._text.tokens
        # Only a part of it where the match ends at the text's end, as in a loop: see below.
        copy = tokens[position : position + depth_max]
        period = len(copy)
        while len(copy) < depth_max:
            copy.extend(copy[: min(period, depth_max - len(copy))])
        tree.add_chain(-1, copy, kind(self._number, level))
