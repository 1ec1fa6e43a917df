"""Draft rationing: which rows' draft sources run in a round, and which rows report their top-k."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple, Protocol

from draftwerk.speculative.drafting.breaker import Breaker
from draftwerk.speculative.sources.draft_head import HeadSource

ASK_MS = 0.05
"""What it takes to ask a row's sources, until it is measured: guesses that save less lose time."""
WEIGHT_ALWAYS_ASKED = 2.0
"""Sources of a row with this token weight always run, whatever their acceptance was."""
HEAD_MS = 0.5
"""About what a draft head takes for a row, until it is measured."""
PACE = 0.05
"""Weight of the newest measurement of either."""
SURPRISE_MAX = 3.0
"""Times what was expected: a core that does something else for a while teaches no more."""
PROBE_SHARE = 0.02
"""The probe budget: share of a round's time for the sources of rows whose drafts do not pay."""
PROBES_SAVED = 8
"""Probes that may be saved up for: the rows of a small round are all probed at once."""


class Choice(NamedTuple):
    """What is done for a row in a round."""

    ask: bool
    """Whether its sources propose."""
    wants_topk: bool
    """Whether the target's top-k, and the draft head's tree, are to be reported of it."""


NOT_ASKED = Choice(ask=False, wants_topk=False)


class RationedRow(Protocol):
    """A row that could be guessed for."""

    breaker: Breaker

    @property
    def head(self) -> HeadSource | None: ...


class DraftRationing:
    """Runs the sources of all rows that pay, and of others in turn for a share of the time."""

    def __init__(self) -> None:
        self.ask_ms = ASK_MS
        """Time of a row's sources."""
        self.head_ms = HEAD_MS
        """Time of the draft head per row, where it takes time of its own; rows share some of it."""
        self._saved_ms = inf
        """Time saved up for rows whose drafts do not pay: for their sources and the draft head."""

    def learn(self, rows: int, ms: float) -> None:
        """Record the draft head's time for some rows together."""
        self.head_ms = _learnt(self.head_ms, rows, ms)

    def learn_asking(self, rows: int, ms: float) -> None:
        """Record the time that the sources of some rows took together."""
        self.ask_ms = _learnt(self.ask_ms, rows, ms)

    def pays(self, row: RationedRow, saved_ms: float) -> bool:
        """Whether a row's drafts saved more time than they cost."""
        with_head_tree = row.head is not None and row.head.head_tree
        return saved_ms > self.ask_ms + (self.head_ms if with_head_tree else 0.0)

    def choose(
        self, turn: int, rows: Sequence[tuple[RationedRow, float]], step_ms: float
    ) -> list[Choice]:
        """Decide for every row, given its token weight, in a round of `step_ms`."""
        budget_ms = PROBE_SHARE * step_ms
        heads = any(row.head is not None for row, _ in rows)
        probe_ms = self.ask_ms + self.head_ms if heads else self.ask_ms
        self._saved_ms = min(self._saved_ms + budget_ms, max(budget_ms, PROBES_SAVED * probe_ms))
        choices = [NOT_ASKED] * len(rows)
        for offset in range(len(rows)):
            index = (turn + offset) % len(rows)
            row, weight = rows[index]
            allows = row.breaker.allows()
            pays = allows and row.breaker.pays
            probes = allows and not pays and self._saved_ms >= probe_ms
            if probes:
                self._saved_ms -= probe_ms
            choices[index] = _choice(row, pays or probes, weight > WEIGHT_ALWAYS_ASKED)
        return choices

    def check(self) -> None:
        """Assert that prices are positive, and that no more was spent than had been saved."""
        assert self.ask_ms > 0.0 < self.head_ms
        assert self._saved_ms >= 0.0


def _learnt(known_ms: float, rows: int, ms: float) -> float:
    """Return the time per row once `rows` are known to have taken `ms` together."""
    if not rows or ms <= 0.0:
        return known_ms
    return known_ms + PACE * (min(ms / rows, SURPRISE_MAX * known_ms) - known_ms)


def _choice(row: RationedRow, runs: bool, always_asked: bool) -> Choice:
    if row.head is not None and row.head.head_tree:
        # The head's tree is already computed, so drafting from it is free.
        return Choice(ask=True, wants_topk=runs and not row.breaker.is_open)
    return Choice(ask=runs or always_asked, wants_topk=runs)
