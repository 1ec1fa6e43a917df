"""Acceptance statistics: how likely a draft node is accepted if its parent is; never trained.

A cell is one (source, bucket, depth); a bucket is a source's own grade of how good its match was.
A verdict updates every source that proposed a node, verified or not: the committed text shows which
proposals were right, so nothing is censored and no bandit algorithm is needed.
"""

PREDICTION, NGRAM, SUFFIX, STORE, RECYCLE, DRAFT, GRAMMAR, HEAD = range(8)
NAMES = ("prediction", "ngram", "suffix", "store", "recycle", "draft", "grammar", "head")
"""By source number; these are the names that requests, metrics and token origins use."""

DEPTHS = 8
"""Depths that have statistics of their own; deeper nodes share the last."""
BUCKETS = 32
"""How many kinds of guess a source may tell apart."""
PER_SOURCE = BUCKETS * DEPTHS

PRIOR_WEIGHT = 6
"""Observations that a prior is worth."""
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


def _priors() -> list[float]:
    """Return the chances to start with, by cell; a few dozen guesses correct a wrong one."""
    by_bucket: dict[int, list[float]] = {
        PREDICTION: [0.25, 0.35, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.8],
        NGRAM: [0.3, 0.4, 0.5, 0.7, 0.85],
        # Five match lengths, each with four levels of agreement between the places that match.
        SUFFIX: [
            base * share for base in (0.5, 0.6, 0.7, 0.85, 0.95) for share in (0.2, 0.4, 0.7, 0.9)
        ],
        STORE: [
            base * share for base in (0.4, 0.5, 0.7, 0.85, 0.95) for share in (0.2, 0.4, 0.7, 0.9)
        ],
        # Eight bands of scores: of the best successor and the others, without noise and with it.
        RECYCLE: [
            *(0.05, 0.08, 0.12, 0.19, 0.3, 0.4, 0.5, 0.5),
            *(0.01, 0.03, 0.12, 0.15, 0.2, 0.2, 0.2, 0.2),
            *(0.03, 0.06, 0.15, 0.2, 0.27, 0.35, 0.52, 0.5),
            *(0.02, 0.045, 0.075, 0.1, 0.13, 0.13, 0.13, 0.13),
        ],
        HEAD: [
            *(0.03, 0.05, 0.1, 0.25, 0.5, 0.7, 0.9, 0.9),
            *(0.01, 0.03, 0.08, 0.2, 0.3, 0.3, 0.3, 0.3),
            *(0.1, 0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 0.7),
            *(0.03, 0.05, 0.08, 0.12, 0.15, 0.18, 0.2, 0.2),
        ],
        DRAFT: [0.65],
        GRAMMAR: [1.0],
    }
    chances = [0.3] * (len(NAMES) * PER_SOURCE)
    for source, buckets in by_bucket.items():
        for bucket, chance in enumerate(buckets):
            first = kind(source, bucket)
            chances[first : first + DEPTHS] = [chance] * DEPTHS
    return chances


class AcceptanceStats:
    """The chances of every cell, shared by all sequences."""

    def __init__(self) -> None:
        self.chances = _priors()
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
        assert all(0.0 <= chance <= 1.0 for chance in self.chances)


class SequenceAcceptance:
    """How each source's acceptance in one sequence compares with its global acceptance."""

    __slots__ = ("_expected", "_hits", "factors")

    def __init__(self) -> None:
        self.factors = [1.0] * len(NAMES)
        self._hits = [SEQUENCE_WEIGHT] * len(NAMES)
        self._expected = [SEQUENCE_WEIGHT] * len(NAMES)

    def learn(self, source: int, expected: float, hits: int) -> None:
        """Take in one round: hits, and what the chances that all sequences share had promised."""
        predicted = (
            (self._expected[source] - SEQUENCE_WEIGHT) * SEQUENCE_DECAY + expected + SEQUENCE_WEIGHT
        )
        had = (self._hits[source] - SEQUENCE_WEIGHT) * SEQUENCE_DECAY + hits + SEQUENCE_WEIGHT
        self._expected[source], self._hits[source] = predicted, had
        self.factors[source] = min(had / predicted, SEQUENCE_MAX)
