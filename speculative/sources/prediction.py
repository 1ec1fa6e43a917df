"""The client's own guess of the whole answer, found again after every departure from it.

A prediction is mostly right and shifted now and then. While one place of it agrees with the output
the rest is copied from there; where the output departs, every plausible place is a hypothesis, and
those that the next tokens contradict are dropped.
"""

from draftwerk.speculative.sources.acceptance import PREDICTION, kind
from draftwerk.speculative.sources.ngram_index import GAP, PAD, Occurrences, Text
from draftwerk.speculative.sources.tree import Tree

INSERTED, REPLACED, SKIPPED, MATCHED = range(4)
"""Buckets of a fresh hypothesis; then one for each length of agreement."""
CONFIRMED = 4
AGREED = (1, 2, 4, 8, 16)
BEGUN = CONFIRMED + len(AGREED)
"""The bucket of the prediction's beginning, before anything was said."""

HYPOTHESES_MAX = 4
SKIP_MAX = 96
"""Predicted tokens that an output may leave out at once and be found by a single token."""
UNSURE_REACH = 6
"""Path length for a hypothesis that nothing confirms yet."""


class PredictionSource:
    """Where in the prediction the output may be."""

    __slots__ = ("_home", "_hypotheses", "_lost", "_predicted", "_text")

    def __init__(self, text: Text, prediction: tuple[int, ...], output: tuple[int, ...]) -> None:
        self._text = text
        self._predicted = Occurrences(prediction)
        self._predicted.index(len(prediction))
        self._hypotheses = [(PAD, 0, BEGUN)]
        """(position in the prediction, tokens agreed since, bucket while none has)."""
        self._home = PAD
        """The position after the last token that was found where it was expected."""
        self._lost = 0
        """Tokens since then."""
        self.learn(output)

    def learn(self, news: tuple[int, ...]) -> None:
        """Drop the hypotheses that the tokens contradict; make new ones when none is left."""
        predicted = self._predicted.tokens
        previous = self._text.tokens[-len(news) - 1] if news else 0
        for token in news:
            kept = [
                (place + 1, agreed + 1, bucket)
                for place, agreed, bucket in self._hypotheses
                if place < len(predicted) and predicted[place] == token
            ]
            if kept:
                kept.sort(key=lambda hypothesis: -hypothesis[1])
                self._home, self._lost = kept[0][0], 0
                self._hypotheses = kept
            else:
                self._lost += 1
                self._hypotheses = self._reanchor(previous, token)
            previous = token

    def propose(self, tree: Tree, reach: int) -> None:
        """Copy on from every hypothesis, the surest first."""
        predicted = self._predicted.tokens
        for place, agreed, bucket in self._hypotheses:
            if agreed:
                bucket = CONFIRMED - 1 + sum(agreed >= count for count in AGREED)
            length = reach if agreed or bucket == BEGUN else min(reach, UNSURE_REACH)
            tree.add_chain(-1, predicted[place : place + length], kind(PREDICTION, bucket))

    def _reanchor(self, previous: int, token: int) -> list[tuple[int, int, int]]:
        """Return the places where the prediction may go on after an unexpected token."""
        pair = [GAP] * (PAD - 2) + [previous, token]
        places = [place for place, _ in self._predicted.matches(pair, False)]
        places.sort(key=lambda place: abs(place - self._home))
        found = dict.fromkeys(places[:2], MATCHED)
        ahead = self._predicted.tokens[self._home : self._home + SKIP_MAX]
        if token in ahead:
            found.setdefault(self._home + ahead.index(token) + 1, SKIPPED)
        found.setdefault(self._home + self._lost, REPLACED)
        found.setdefault(self._home, INSERTED)
        hypotheses = [(place, 0, bucket) for place, bucket in found.items()]
        return hypotheses[:HYPOTHESES_MAX]
