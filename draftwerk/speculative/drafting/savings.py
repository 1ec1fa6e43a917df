"""The savings of drafts of late: a record of all texts of a kind, and one of each text.

Savings are tokens that need no step of their own, net of what verifying the drafts took, in rounds
that had drafts of some sources. Tokens, since what one is worth changes with the rows of a round.
"""

from math import inf

RECORD_PACE = 1 / 32
"""Weight of the newest round of a text in the record of all texts."""
TEXT_PACE = 0.2
"""Weight of a text's newest round in its own savings: one round that saves much outweighs several
that save nothing, as it should, and is forgotten after as many."""
KEPT = 0.99
"""The share that a text keeps of its own savings in a round without drafts; the rest is the
record's. Where others save much it is asked again soon, as behind a long copy that another source
had."""
BEGINNING = 8
"""A text's first rounds, which teach the record: it is what new texts begin from, and texts that
go on are those that pay."""
RENEWAL = 0.1
"""Such rounds that a text has again for each in which it was not drafted for."""


class SavingsRecord:
    """The mean of what the first drafted rounds of each text saved; 0 while nothing is known."""

    __slots__ = ("_count", "rounds", "tokens")

    def __init__(self) -> None:
        self.tokens, self._count = 0.0, 0
        self.rounds = 0
        """Rounds so far, of any texts: a text without drafts is not touched in each."""

    def learn(self, tokens: float) -> None:
        """Take in one round of a text."""
        self._count += 1
        self.tokens += (tokens - self.tokens) * max(1 / self._count, RECORD_PACE)


class TextSavings:
    """One text's; the record's until it has been drafted for."""

    __slots__ = ("_learnt_at", "_taught", "own", "probed_at", "record")

    def __init__(self, record: SavingsRecord) -> None:
        self.record = record
        self.own = -inf
        """After the last round that had drafts."""
        self._learnt_at = 0
        """The round in which it was drafted for last."""
        self._taught = 0.0
        """Rounds of which the record has learnt."""
        self.probed_at = 0
        """When it was last probed, as the account counts; 0 for never."""

    @property
    def is_new(self) -> bool:
        """Whether it was neither probed nor drafted for."""
        return not self.probed_at and self.own == -inf

    @property
    def tokens(self) -> float:
        """Tokens that the next drafted round is expected to save: from the record's to `own`."""
        common = self.record.tokens
        if self.own == -inf:
            return common
        return common + (self.own - common) * KEPT ** (self.record.rounds - self._learnt_at)

    def learn(self, tokens: float) -> None:
        """Take in a round that had drafts of these sources, useful or not."""
        record = self.record
        self._taught = max(0.0, self._taught - RENEWAL * (record.rounds - self._learnt_at))
        if self._taught < BEGINNING:
            self._taught += 1.0
            record.learn(tokens)  # first: the first text of all begins from what it saved
        before = self.tokens
        self.own = before + (tokens - before) * TEXT_PACE
        self._learnt_at = record.rounds
