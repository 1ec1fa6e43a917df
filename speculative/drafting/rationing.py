"""Which rows' draft sources are asked in a round, and for which the target thinks on."""

from collections.abc import Sequence
from typing import Protocol

from draftwerk.speculative.drafting.breaker import Breaker
from draftwerk.speculative.sources.draft_head import HeadSource

ASK_MS = 0.05
"""About what it takes to ask a row's sources: below that, guesses that save time still lose it."""
WORTH_ASKING = 2.0
"""A row whose tokens are worth this is asked whatever became of its guesses while it was ahead."""
THINK_MS = 0.5
"""About what it takes a draft head to think about a row, until it is known."""
THINK_PACE = 0.05
THINK_MOST = 3.0
"""Times what was expected: a core that does something else for a while teaches no more."""
HOPE_SHARE = 0.02
"""Of a round's time, what may go into asking the sources of rows whose guesses do not pay."""
HOPEFUL_MIN = 4
"""Such rows asked in every round, whatever it takes: few users shall not wait for their turn."""


class Candidate(Protocol):
    """A row that could be guessed for."""

    breaker: Breaker
    asked: bool
    """Whether the sources are asked in this round."""
    thinks: bool
    """Whether the target shall say what could follow, for the sources to guess with."""

    @property
    def head(self) -> HeadSource | None: ...


class Turns:
    """Asks all rows that pay, and others in turn for a share of the time."""

    def __init__(self) -> None:
        self.think_ms = THINK_MS
        """What thinking costs a row, where it costs time of its own; many share some of it."""
        self._saved_ms = 0.0
        """Time put by for the target to think on where nothing pays."""

    def learn(self, rows: int, ms: float) -> None:
        """Take in what it cost to think about some rows together."""
        if rows and ms:
            seen = min(ms / rows, THINK_MOST * self.think_ms)
            self.think_ms += THINK_PACE * (seen - self.think_ms)

    def pays(self, row: Candidate, saved_ms: float) -> bool:
        """Whether a row's guesses were worth it."""
        thought = row.head is not None and row.head.thoughts
        return saved_ms > ASK_MS + (self.think_ms if thought else 0.0)

    def choose(self, turn: int, rows: Sequence[tuple[Candidate, float]], step_ms: float) -> None:
        """Decide for every row, with what its tokens are worth, of a round of `step_ms`."""
        hope_ms = HOPE_SHARE * step_ms
        heads = any(row.head is not None for row, _ in rows)
        cost_ms = ASK_MS + self.think_ms if heads else ASK_MS
        left = max(HOPEFUL_MIN, int(hope_ms / cost_ms))
        for place in range(len(rows)):
            row, worth = rows[(turn + place) % len(rows)]
            asks = row.breaker.asks()
            row.asked = worth > WORTH_ASKING or (asks and (row.breaker.pays or left > 0))
            left -= row.asked and not row.breaker.pays
            row.thinks = row.asked
            if row.head is not None and row.head.thoughts:
                # What was thought already costs nothing more; was it worth it?
                row.asked, row.thinks = True, row.asked and not row.breaker.hopeless
        self._ration([row for row, _ in rows if row.thinks and row.head is not None], hope_ms)

    def _ration(self, thinking: Sequence[Candidate], hope_ms: float) -> None:
        """Let hopeless rows have the target think only as often as the time put by allows."""
        if not thinking or not all(row.breaker.hopeless for row in thinking):
            return
        self._saved_ms += hope_ms
        cost_ms = self.think_ms * len(thinking)
        if self._saved_ms >= cost_ms:
            self._saved_ms -= cost_ms
            return
        for row in thinking:
            row.thinks = False
