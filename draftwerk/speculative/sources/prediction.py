"""The client's own guess of the whole answer, found again after every departure from it.

A prediction is mostly right and shifted now and then. While one place of it agrees with the output
the rest is copied from there; where the output departs, every plausible place is a hypothesis, and
those that the next tokens contradict are dropped.
"""

from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.ngram_index import GAP, PAD, Occurrences, SequenceText
from draftwerk.speculative.sources.tree import DraftSource, DraftTree

INSERTED, REPLACED, SKIPPED, MATCHED = range(4)
"""Buckets of a fresh hypothesis; then one for each length of agreement."""
CONFIRMED = 4
AGREED = (1, 2, 4, 8, 16)
BEGUN = CONFIRMED + len(AGREED)
"""The bucket of the prediction's beginning, before the output began."""

HYPOTHESES_MAX = 4
SKIP_MAX = 96
"""Predicted tokens that an output may leave out at once and be found by a single token."""
UNSURE_DEPTH = 6
"""Path length for a hypothesis that nothing confirms yet."""


class PredictionSource(DraftSource):
    """Where in the prediction the output may be."""

    __slots__ = ("_followed", "_home", "_hypotheses", "_lost", "_predicted", "_text")

    def __init__(
        self,
        number: int,
        text: SequenceText,
        prediction: tuple[int, ...],
        output_count: int,
    ) -> None:
        """`output_count` tokens of the text are output already."""
        super().__init__(number)
        self._text = text
        self._followed = len(text.tokens) - output_count
        """Tokens of the text that the hypotheses have seen."""
        self._predicted = Occurrences(prediction)
        self._predicted.index(len(prediction))
        self._hypotheses = [(PAD, 0, BEGUN)]
        """(position in the prediction, tokens agreed since, bucket while none has)."""
        self._home = PAD
        """The position after the last token that was found where it was expected."""
        self._lost = 0
        """Tokens since then."""

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Copy on from every hypothesis, the surest first."""
        self._follow()
        predicted = self._predicted.tokens
        for position, agreed, bucket in self._hypotheses:
            if agreed:
                bucket = CONFIRMED - 1 + sum(agreed >= count for count in AGREED)
            length = depth_max if agreed or bucket == BEGUN else min(depth_max, UNSURE_DEPTH)
            tree.add_chain(-1, predicted[position : position + length], kind(self._number, bucket))

    def _follow(self) -> None:
        """Drop the hypotheses that new tokens contradict; make new ones when none is left."""
        predicted, tokens = self._predicted.tokens, self._text.tokens
        previous = tokens[self._followed - 1]
        for token in tokens[self._followed :]:
            kept = [
                (position + 1, agreed + 1, bucket)
                for position, agreed, bucket in self._hypotheses
                if position < len(predicted) and predicted[position] == token
            ]
            if kept:
                kept.sort(key=lambda hypothesis: -hypothesis[1])
                self._home, self._lost = kept[0][0], 0
                self._hypotheses = kept
            else:
                self._lost += 1
                self._hypotheses = self._reanchor(previous, token)
            previous = token
        self._followed = len(tokens)

    def _reanchor(self, previous: int, token: int) -> list[tuple[int, int, int]]:
        """Return the places where the prediction may go on after an unexpected token."""
        pair = [GAP] * (PAD - 2) + [previous, token]
        positions = [position for position, _ in self._predicted.matches(pair, False)]
        positions.sort(key=lambda position: abs(position - self._home))
        found = dict.fromkeys(positions[:2], MATCHED)
        ahead = self._predicted.tokens[self._home : self._home + SKIP_MAX]
        if token in ahead:
            found.setdefault(self._home + ahead.index(token) + 1, SKIPPED)
        found.setdefault(self._home + self._lost, REPLACED)
        found.setdefault(self._home, INSERTED)
        hypotheses = [(position, 0, bucket) for position, bucket in found.items()]
        return hypotheses[:HYPOTHESES_MAX]
