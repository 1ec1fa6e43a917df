"""The levels of a draft head's tree: how many of them a text's next tree is worth computing.

The guesses at a level can be right only where those above it are, and each level takes the head
once more. So a level is computed where its guesses were right often enough of late to save more
time than it takes; now and then all of them are, to see.
"""

from draftwerk.speculative.drafting.savings import SavingsRecord, TextSavings
from draftwerk.speculative.rounds import NO_DRAFT

ALL_LEVELS = NO_DRAFT.wants_levels
"""More than the tree of any draft head has."""
PACE = 1 / 16
"""Weight of the newest tree of a text in its own shares."""
RECORD_PACE = 1 / 64
"""Weight of it in the shares of all texts, which new ones begin from."""
GAIN_MIN = 1.5
"""How many times what a level takes has to be saved: its guesses have to be verified as well."""
TRIAL_EVERY = 16
"""Trees of a text of which one has all levels."""


class LevelRecord:
    """The shares of all texts of a kind; 1 where nothing is known, so that it is computed."""

    __slots__ = ("_counts", "shares")

    def __init__(self) -> None:
        self.shares = [1.0] * ALL_LEVELS
        self._counts = [0] * ALL_LEVELS

    def learn(self, level: int, was_right: float) -> None:
        """Take in a level of one tree."""
        self._counts[level] += 1
        pace = max(1 / self._counts[level], RECORD_PACE)
        self.shares[level] += (was_right - self.shares[level]) * pace


class HeadLevels:
    """The share of a text's trees in which a guess at a level was accepted, for each level."""

    __slots__ = ("_record", "_shares", "_trees")

    def __init__(self, record: LevelRecord) -> None:
        """`record` learns from this text, too."""
        self._record = record
        self._shares = [*record.shares]
        self._trees = 0

    def learn(self, computed: int, accepted: int) -> None:
        """Take in a tree: the levels that were computed, and those with an accepted guess."""
        for level in range(min(computed, ALL_LEVELS)):
            was_right = float(level < accepted)
            self._record.learn(level, was_right)
            self._shares[level] += (was_right - self._shares[level]) * PACE

    def wanted(self, token_ms: float, level_ms: float) -> int:
        """Return how many levels the next tree is worth, where a token takes `token_ms`."""
        self._trees += 1
        if self._trees % TRIAL_EVERY:
            for level in range(1, ALL_LEVELS):
                if self._shares[level] * token_ms < GAIN_MIN * level_ms:
                    return level
        return ALL_LEVELS


class HeadSavings(TextSavings):
    """The savings of a text's draft head, and the levels of its trees."""

    __slots__ = ("levels",)

    def __init__(self, record: SavingsRecord, levels: HeadLevels) -> None:
        super().__init__(record)
        self.levels = levels
