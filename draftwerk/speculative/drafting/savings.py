"""What drafts have saved of late: a record of all texts of a kind, and one of each text.

Savings are tokens that need no step of their own, net of what verifying the drafts took, in rounds
that had drafts of some sources. Tokens, since what one is worth changes with the rows of a round.
"""

RECORD_PACE = 1 / 32
"""Weight of the newest round of a text in the record of all texts."""
TEXT_PACE = 0.2
"""Weight of a text's newest round in its own savings: one round that saves much outweighs several
that save nothing, as it should, and is forgotten after as many."""
RETURN_PACE = 0.01
"""How fast a text that is not drafted for returns to the record: where others save much it is asked
again soon, as behind a long copy that another source had; where none do, it is not."""
BEGINNING = 8
"""A text's first rounds, which teach the record: it is what new texts begin from, and texts that
go on are those that pay."""
RENEWAL = 0.1
"""Such rounds that a text has again for each in which it was not drafted for."""


class SavingsRecord:
    """The mean of what the first drafted rounds of each text saved; 0 while nothing is known."""

    __slots__ = ("_count", "tokens")

    def __init__(self) -> None:
        self.tokens, self._count = 0.0, 0

    def learn(self, tokens: float) -> None:
        """Take in one round of a text."""
        self._count += 1
        self.tokens += (tokens - self.tokens) * max(1 / self._count, RECORD_PACE)


class TextSavings:
    """One text's; the record's until it has been drafted for."""

    __slots__ = ("_own", "_record", "_taught", "probed_at")

    def __init__(self, record: SavingsRecord) -> None:
        self._record = record
        self._own: float | None = None
        self._taught = 0.0
        """Rounds of which the record has learnt."""
        self.probed_at = 0
        """When it was last probed, by the count of probes; 0 for never."""

    @property
    def tokens(self) -> float:
        """Tokens that the next drafted round is expected to save."""
        return self._record.tokens if self._own is None else self._own

    def rest(self) -> None:
        """Take in a round that had none."""
        if self._own is not None:
            self._own += (self._record.tokens - self._own) * RETURN_PACE
            self._taught = max(0.0, self._taught - RENEWAL)

    def learn(self, tokens: float) -> None:
        """Take in a round that had drafts of these sources, useful or not."""
        self._own = self.tokens + (tokens - self.tokens) * TEXT_PACE
        if self._taught < BEGINNING:
            self._taught += 1.0
            self._record.learn(tokens)
