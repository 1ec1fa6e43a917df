"""Draft rationing: which rows' draft sources run in a round, and which rows report their top-k."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple, Protocol

from draftwerk.speculative.drafting.breaker import Breaker
from draftwerk.speculative.protocol.step_report import StepReport
from draftwerk.speculative.sources.draft_head import HeadSource

ASK_MS = 0.05
"""What it takes to ask a row's sources, until it is measured: guesses that save less lose time."""
WEIGHT_ALWAYS_ASKED = 2.0
"""Sources of a row with this token weight always run, whatever their acceptance was."""
TOPK_MS = 0.03
"""About what the target's top-k of a row takes, until it is measured."""
HEAD_MS = 0.5
"""About what a draft head takes for a row, until it is measured."""
PACE = 0.05
"""Weight of the newest measurement of each."""
SURPRISE_MAX = 3.0
"""Times what was expected: a core that does something else for a while teaches no more."""
PROBE_SHARE = 0.01
"""The probe budget: share of a round's time for rows whose drafts do not pay, a half for their
sources and a half for what is to be reported of them."""
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


class Savings:
    """Time saved up for probes; as much as there may be, to begin with."""

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = inf

    def probes(self, budget_ms: float, probe_ms: float) -> int:
        """Add a round's budget; return how many probes there is time for."""
        self.ms = min(self.ms + budget_ms, max(budget_ms, PROBES_SAVED * probe_ms))
        return int(self.ms / probe_ms)

    def spend(self, ms: float) -> None:
        """Take out what some of these probes take."""
        self.ms = max(0.0, self.ms - ms)


class DraftRationing:
    """Runs the sources of all rows that pay, and of others in turn for a share of the time."""

    def __init__(self) -> None:
        self.ask_ms = ASK_MS
        """Time of a row's sources."""
        self.topk_ms = TOPK_MS
        """Time of the target's top-k per row."""
        self.head_ms = HEAD_MS
        """Time of the draft head per row, where it takes time of its own; rows share some of it."""
        self._for_sources, self._for_reports = Savings(), Savings()

    def learn(self, report: StepReport) -> None:
        """Record what the draft head and the top-k of some rows took in a step."""
        self.head_ms = _learnt(self.head_ms, report.head_rows, report.head_ms)
        self.topk_ms = _learnt(self.topk_ms, report.topk_rows, report.topk_ms)

    def learn_asking(self, rows: int, ms: float) -> None:
        """Record the time that the sources of some rows took together."""
        self.ask_ms = _learnt(self.ask_ms, rows, ms)

    def pays(self, row: RationedRow, saved_ms: float) -> bool:
        """Whether a row's drafts saved more time than they cost."""
        with_head_tree = row.head is not None and row.head.head_tree
        return saved_ms > self.ask_ms + self.topk_ms + (self.head_ms if with_head_tree else 0.0)

    def choose(
        self, turn: int, rows: Sequence[tuple[RationedRow, float]], step_ms: float
    ) -> list[Choice]:
        """Decide for every row, given its token weight, in a round of `step_ms`."""
        budget_ms = PROBE_SHARE / 2 * step_ms
        heads = any(row.head is not None for row, _ in rows)
        report_ms = self.topk_ms + self.head_ms if heads else self.topk_ms
        asks = self._for_sources.probes(budget_ms, self.ask_ms)
        reports = self._for_reports.probes(budget_ms, report_ms)
        turns = [(turn + offset) % len(rows) for offset in range(len(rows))]
        allowed = [index for index in turns if rows[index][0].breaker.allows()]
        paying = {index for index in allowed if rows[index][0].breaker.pays}
        asked = [index for index in allowed if index not in paying][:asks]
        reported = asked[:reports]
        self._for_sources.spend(len(asked) * self.ask_ms)
        self._for_reports.spend(len(reported) * report_ms)
        run, report = paying.union(asked), paying.union(reported)
        return [
            _choice(row, index in run, index in report, weight)
            for index, (row, weight) in enumerate(rows)
        ]

    def check(self) -> None:
        """Assert that prices are positive, and that no more was spent than had been saved."""
        assert min(self.ask_ms, self.topk_ms, self.head_ms) > 0.0
        assert min(self._for_sources.ms, self._for_reports.ms) >= 0.0


def _learnt(known_ms: float, rows: int, ms: float) -> float:
    """Return the time per row once `rows` are known to have taken `ms` together."""
    if not rows or ms <= 0.0:
        return known_ms
    return known_ms + PACE * (min(ms / rows, SURPRISE_MAX * known_ms) - known_ms)


def _choice(row: RationedRow, runs: bool, reports: bool, weight: float) -> Choice:
    if row.head is not None and row.head.head_tree:
        # The head's tree is already computed, so drafting from it is free.
        return Choice(ask=True, wants_topk=reports and not row.breaker.is_open)
    return Choice(ask=runs or weight > WEIGHT_ALWAYS_ASKED, wants_topk=reports)
