"""Draft rationing: for which rows of a round the draft sources and the draft head run.

They run for the rows that are expected to save more time than this takes. Others are probed from an
account that a share of every round's time goes into; so drafts that never pay cost no more than it.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from draftwerk.speculative.drafting.row_cost import RowCost
from draftwerk.speculative.drafting.savings import SavingsRecord, TextSavings
from draftwerk.speculative.protocol.step_report import StepReport

ASK_MS = 0.05
"""What it takes to ask a row's sources, until it is measured."""
TOPK_MS = 0.03
"""About what the target's top-k of a row takes, until it is measured."""
HEAD_MS = 0.5
"""About what a draft head takes for a row, until it is measured."""
PROBE_SHARE = 0.01
"""Share of a round's time for probes, a half for the sources' and a half for the head's."""
PROBED_MAX = 8
"""Rows that are probed at once, where there are so many: much of what a head takes is the same for
one row and for several."""


class Choice(NamedTuple):
    """What is done for a row in a round."""

    ask: bool
    """Whether its sources propose, and the target's top-k is reported to them."""
    wants_head: bool
    """Whether the draft head runs from where the row ends."""


NOT_ASKED = Choice(ask=False, wants_head=False)


class RationedRow(NamedTuple):
    """What is known of a row that may be drafted for."""

    sources: TextSavings | None
    """None where the row has no room for drafts."""
    head: TextSavings | None
    """None where no draft head serves it."""


class Price(NamedTuple):
    """What drafting for some rows takes: something, and so much for each."""

    fixed_ms: float
    row_ms: float

    def ms(self, rows: int) -> float:
        """Return what some rows take together."""
        return self.fixed_ms + self.row_ms * rows


class ProbeAccount:
    """Time saved up for the next probe of rows that do not pay; enough for one to begin with."""

    __slots__ = ("_count", "ms")

    def __init__(self) -> None:
        self.ms, self._count = inf, 0

    def probed(self, texts: dict[int, TextSavings], price: Price, income_ms: float) -> list[int]:
        """Add a round's income; return the rows to probe, those first that have waited longest."""
        cost_ms = price.ms(min(len(texts), PROBED_MAX))
        self.ms = min(self.ms + income_ms, cost_ms)
        if self.ms < cost_ms:
            return []
        self.ms = 0.0
        self._count += 1
        found = sorted(texts, key=lambda index: texts[index].probed_at)[:PROBED_MAX]
        for index in found:
            texts[index].probed_at = self._count
        return found


class DraftRationing:
    """Runs sources and head for the rows that pay, and for others from their accounts."""

    def __init__(self) -> None:
        self.asking, self.topk = RowCost(ASK_MS), RowCost(TOPK_MS)
        self.head = RowCost(HEAD_MS)
        """Of the draft head, where it takes time of its own."""
        self._records: dict[tuple[str, bool], SavingsRecord] = {}
        self._source_account, self._head_account = ProbeAccount(), ProbeAccount()

    def savings(self, kind: str, sampled: bool) -> TextSavings:
        """Return those of a new text, which begin from what others of its kind have."""
        return TextSavings(self._records.setdefault((kind, sampled), SavingsRecord()))

    def learn(self, report: StepReport) -> None:
        """Record what the draft head and the top-k of some rows took in a step."""
        self.head.learn(report.head_rows, report.head_ms)
        self.topk.learn(report.topk_rows, report.topk_ms)

    def choose(self, rows: Sequence[RationedRow], step_ms: float, token_ms: float) -> list[Choice]:
        """Decide for every row of a round of `step_ms`, in which a token takes `token_ms`."""
        income_ms = PROBE_SHARE / 2 * step_ms
        asking, topk, head = self.asking, self.topk, self.head
        row_ms = asking.row_ms + topk.fixed_ms + topk.row_ms
        asked = _chosen(
            [row.sources for row in rows],
            Price(asking.fixed_ms, row_ms),
            self._source_account,
            token_ms,
            income_ms,
        )
        headed = _chosen(
            [row.head for row in rows],
            Price(head.fixed_ms, head.row_ms + asking.row_ms),
            self._head_account,
            token_ms,
            income_ms,
        )
        return [Choice(index in asked, index in headed) for index in range(len(rows))]

    def check(self) -> None:
        """Assert that costs are sound, and that no more was spent than had been saved."""
        for cost in (self.asking, self.topk, self.head):
            cost.check()
        assert min(self._source_account.ms, self._head_account.ms) >= 0.0


def paying(texts: dict[int, TextSavings], price: Price, token_ms: float) -> set[int]:
    """Return the rows that save more than they take, if together they save what is fixed, too."""
    gains = {
        index: gain
        for index, text in texts.items()
        if (gain := text.tokens * token_ms - price.row_ms) > 0.0
    }
    return {*gains} if sum(gains.values()) > price.fixed_ms else set()


def _chosen(
    savings: Sequence[TextSavings | None],
    price: Price,
    account: ProbeAccount,
    token_ms: float,
    income_ms: float,
) -> set[int]:
    texts = {index: text for index, text in enumerate(savings) if text is not None}
    found = paying(texts, price, token_ms)
    others = {index: text for index, text in texts.items() if index not in found}
    if others:
        found.update(account.probed(others, price, income_ms))
    for index, text in others.items():
        if index not in found:
            text.rest()
    return found
