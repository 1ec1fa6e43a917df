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
        """Time saved up for asking rows whose drafts do not pay."""
        self._saved_head_ms = 0.0
        """Time saved up for draft-head probes, where the drafts of no row pay."""

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
        probe_ms = PROBE_SHARE * step_ms
        heads = any(row.head is not None for row, _ in rows)
        cost_ms = self.ask_ms + self.head_ms if heads else self.ask_ms
        self._saved_ms = min(self._saved_ms + probe_ms, max(probe_ms, PROBES_SAVED * cost_ms))
        runs = [False] * len(rows)
        for offset in range(len(rows)):
            index = (turn + offset) % len(rows)
            row, weight = rows[index]
            allows = row.breaker.allows()
            runs[index] = weight > WEIGHT_ALWAYS_ASKED or (
                allows and (row.breaker.pays or self._saved_ms >= cost_ms)
            )
            if runs[index] and not row.breaker.pays:
                self._saved_ms = max(0.0, self._saved_ms - cost_ms)
        choices = [_choice(row, run) for (row, _), run in zip(rows, runs, strict=True)]
        waiting = [
            index
            for index, (row, _) in enumerate(rows)
            if row.head is not None and choices[index].wants_topk
        ]
        if not self._affords_heads([rows[index][0] for index in waiting], probe_ms):
            for index in waiting:
                choices[index] = choices[index]._replace(wants_topk=False)
        return choices

    def _affords_heads(self, waiting_rows: Sequence[RationedRow], probe_ms: float) -> bool:
        """Whether the draft head runs now: with all breakers open, as often as saved time allows.

        Takes the time that it is going to take from what was saved.
        """
        if not waiting_rows or not all(row.breaker.is_open for row in waiting_rows):
            return True
        self._saved_head_ms += probe_ms
        cost_ms = self.head_ms * len(waiting_rows)
        if self._saved_head_ms < cost_ms:
            return False
        self._saved_head_ms -= cost_ms
        return True


def _learnt(known_ms: float, rows: int, ms: float) -> float:
    """Return the time per row once `rows` are known to have taken `ms` together."""
    if not rows or ms <= 0.0:
        return known_ms
    return known_ms + PACE * (min(ms / rows, SURPRISE_MAX * known_ms) - known_ms)


def _choice(row: RationedRow, runs: bool) -> Choice:
    if row.head is not None and row.head.head_tree:
        # The head's tree is already computed, so drafting from it is free.
        return Choice(ask=True, wants_topk=runs and not row.breaker.is_open)
    return Choice(ask=runs, wants_topk=runs)
