"""Acceptance statistics: how likely a draft node is accepted if its parent is; never trained.

A cell is one (source, bucket, depth); a bucket is a source's own grade of how good its match was.
A verdict updates every source that proposed a node, verified or not: the committed text shows which
proposals were right, so nothing is censored and no bandit algorithm is needed.
"""

from collections.abc import Mapping, Sequence

SOURCES_MAX = 16
"""Rows that `registry.SOURCES` may have; a source's number is its row."""
DEPTHS = 8
"""Depths that have statistics of their own; deeper nodes share the last."""
BUCKETS = 32
"""How many kinds of guess a source may tell apart."""
PER_SOURCE = BUCKETS * DEPTHS

PRIOR_WEIGHT = 6
"""Observations that a prior is worth: a few dozen guesses correct a wrong one."""
UNKNOWN = 0.3
"""Prior of a bucket that a source's row does not list."""
WEIGHT_MAX = 300
"""Observations after which old ones fade."""
SEQUENCE_WEIGHT = 4.0
"""Expected hits that a sequence's trust in a source starts with."""
SEQUENCE_DECAY = 0.97
"""Per round: a sequence's text changes its character within about thirty rounds."""
SEQUENCE_MAX = 1.25


def kind(source: int, bucket: int) -> int:
    """Return the first cell, that of depth 0, of a source's one kind of guess."""
    return (source * BUCKETS + bucket) * DEPTHS


def source_of(cell: int) -> int:
    """Return the source that a cell or a kind belongs to."""
    return cell // PER_SOURCE


class AcceptanceStats:
    """The chances of every cell, shared by all sequences."""

    def __init__(self, priors: Mapping[str, Sequence[float]]) -> None:
        """Start from these chances by source name, in the order of source numbers, and bucket."""
        self.names = tuple(priors)
        """By source number."""
        assert len(self.names) <= SOURCES_MAX
        self.chances = [UNKNOWN] * (len(self.names) * PER_SOURCE)
        for source, chances in enumerate(priors.values()):
            for bucket, chance in enumerate(chances):
                first = kind(source, bucket)
                self.chances[first : first + DEPTHS] = [chance] * DEPTHS
        self._weights = [PRIOR_WEIGHT] * len(self.chances)

    def learn(self, cell: int, hit: bool) -> None:
        """Count one guess whose parent was right."""
        weight = self._weights[cell]
        if weight < WEIGHT_MAX:
            weight += 1
            self._weights[cell] = weight
        self.chances[cell] += (hit - self.chances[cell]) / weight

    def check(self) -> None:
        """Assert that every chance is one."""
        assert 0.0 <= min(self.chances) <= max(self.chances) <= 1.0


class SequenceAcceptance:
    """How each source's acceptance in one sequence compares with its global acceptance."""

    __slots__ = ("_expected", "_hits", "factors")

    def __init__(self) -> None:
        self.factors = [1.0] * SOURCES_MAX
        self._hits = [SEQUENCE_WEIGHT] * SOURCES_MAX
        self._expected = [SEQUENCE_WEIGHT] * SOURCES_MAX

    def learn(self, source: int, expected: float, hits: int) -> None:
        """Take in one round: hits, and what the chances that all sequences share had promised."""
        predicted = (
            (self._expected[source] - SEQUENCE_WEIGHT) * SEQUENCE_DECAY + expected + SEQUENCE_WEIGHT
        )
        had = (self._hits[source] - SEQUENCE_WEIGHT) * SEQUENCE_DECAY + hits + SEQUENCE_WEIGHT
        self._expected[source], self._hits[source] = predicted, had
        self.factors[source] = min(had / predicted, SEQUENCE_MAX)
