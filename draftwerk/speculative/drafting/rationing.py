"""Draft rationing: for which rows of a round the draft sources and the draft head run.

They run for the rows that are expected to save more time than this takes. Others are probed from an
account that a share of every round's time goes into; so drafts that never pay cost no more than it.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from draftwerk.speculative.drafting.head_levels import HeadLevels, HeadSavings, LevelRecord
from draftwerk.speculative.drafting.row_cost import SURPRISE_MAX, AskingCost, RowCost
from draftwerk.speculative.drafting.savings import SavingsRecord, TextSavings
from draftwerk.speculative.row_parts.step_report import StepReport

ASK_MS = 0.05
"""The time of asking a row's sources, until it is measured."""
TOPK_MS = 0.03
"""About what the target's top-k of a row takes, until it is measured."""
HEAD_MS = 0.5
"""About what a draft head takes for a row, until it is measured."""
PROBE_SHARE = 0.01
"""Share of a round's time for probes, a half for the sources' and a half for the head's."""
VAIN_SHARE = 0.5
"""Part of it after a probe, until rows pay."""
VAIN_KEPT, VAIN_MIN = 0.7, 1 / 8
"""Of that part, what is left after a probe in which no guess was right, and the least part."""
GAIN_MIN = 2.0
"""How many times what asking takes a row's sources have to save: a row that ends a token sooner
does not end sooner what is waited for together with others."""
LEVEL_PACE = 0.05
"""Weight of the newest step in what a level of a draft head's tree takes."""
CREDIT = 4
"""Probes on credit, each behind one in which a guess was right: the first probes of a source that
is good have to show it, before its chances are known."""
PROBED_MAX = 8
"""Rows that are probed at once, where there are so many: much of what a head takes is the same for
one row and for several."""

RESTS = 7
"""Rounds in which nothing is decided, after one in which nothing was wanted: no text begins then,
and what others save changes slowly."""


class Candidates(NamedTuple):
    """The texts of a round that may be drafted for, by their rows' places."""

    sources: dict[int, TextSavings]
    """The savings of rows with room for drafts."""
    heads: dict[int, HeadSavings]
    """The savings of rows that the draft head serves."""
    probed: dict[int, HeadSavings]
    """The rows of them that it may be probed for."""
    copies: dict[int, float]
    """The chances of copies' first tokens, of rows whose text repeats."""


class ChosenRows(NamedTuple):
    """The places of rows for which something is done in a round."""

    asked: set[int]
    """Their sources propose, and the target's top-k is reported to them."""
    headed: dict[int, int]
    """From where they end the draft head grows trees of so many levels."""


class Price(NamedTuple):
    """The price of drafting for some rows: something, and so much for each."""

    fixed_ms: float
    row_ms: float

    def ms(self, rows: int) -> float:
        """Return what some rows take together."""
        return self.fixed_ms + self.row_ms * rows


class ProbeBudget:
    """Time saved up for the next probe of rows that do not pay; enough for one to begin with.

    Below zero, what new texts were asked, or what was probed on credit, is owed.
    """

    __slots__ = ("_count", "_part", "_was_right", "is_near", "ms")

    def __init__(self) -> None:
        self.ms, self._count = inf, 0
        self._part = 1.0
        """The part of the income that is saved."""
        self.is_near = True
        """Whether rows are probed soon: half of what many take is there."""
        self._was_right = False
        """Whether a guess was right since the last round."""

    def probed(
        self, texts: Mapping[int, TextSavings], chosen: set[int], price: Price, income_ms: float
    ) -> set[int]:
        """Add a round's income; return the rows to probe, those first that have waited longest.

        Those that are `chosen` already need no probe.
        """
        waiting = len(texts) - sum(index in texts for index in chosen)
        was_right, self._was_right = self._was_right, False
        if texts and not waiting:
            return set()
        most_ms, probe_ms = price.ms(PROBED_MAX), price.ms(min(waiting, PROBED_MAX))
        self.ms = min(self.ms + self._part * income_ms, most_ms)
        has_credit = was_right and self.ms > -CREDIT * probe_ms
        self.is_near = has_credit or self.ms >= most_ms / 2
        if not waiting or not (has_credit or self.ms >= probe_ms):
            return set()
        self.ms = min(0.0, self.ms - probe_ms)
        self.is_near = False
        self._part = min(VAIN_SHARE, max(VAIN_MIN, VAIN_KEPT * self._part))
        longest = sorted(sorted(texts.keys() - chosen), key=lambda index: texts[index].probed_at)
        return self._counted(texts, longest[:PROBED_MAX])

    def begun(self, texts: Mapping[int, TextSavings], chosen: set[int], price: Price) -> set[int]:
        """Return the rows of new texts, of which one that is known shows at its first tokens.

        They wait while anything is owed.
        """
        if self.ms <= 0.0:
            return set()
        found = [index for index, text in texts.items() if text.is_new and index not in chosen]
        if found:
            self.ms = min(self.ms, price.ms(PROBED_MAX)) - price.ms(len(found))
        return self._counted(texts, found)

    def learn_right(self) -> None:
        """Take in that a guess was right."""
        self._was_right = True
        self.save(VAIN_SHARE)

    def save(self, part: float) -> None:
        """Save this part of the income at least, until a probe is in vain."""
        self._part = max(part, self._part)

    def _counted(self, texts: Mapping[int, TextSavings], found: Sequence[int]) -> set[int]:
        self._count += 1
        for index in found:
            texts[index].probed_at = self._count
        return {*found}


class DraftRationing:
    """Runs sources and head for the rows that pay, and for others from their accounts."""

    def __init__(self) -> None:
        self.asking, self.topk = AskingCost(ASK_MS), RowCost(TOPK_MS)
        self.head = RowCost(HEAD_MS)
        """The cost of the draft head, where it takes time of its own."""
        self._records: dict[tuple[str, bool], SavingsRecord] = {}
        self._levels = {sampled: LevelRecord() for sampled in (False, True)}
        self._level_ms = HEAD_MS / 2
        """The time of a level of a row's tree."""
        self._source_account, self._head_account = ProbeBudget(), ProbeBudget()
        self._token_ms = 0.0
        """The time of a token in the newest round."""
        self._rests_left = self._rested = 0
        """Rounds that may rest, and those that have since anything was decided."""

    def savings(self, sampled: bool) -> TextSavings:
        """Return those of a new text's sources, which begin from what others of its kind have."""
        return TextSavings(self._record("sources", sampled))

    def head_savings(self, sampled: bool) -> HeadSavings:
        """Return those of a new text's draft head."""
        return HeadSavings(self._record("head", sampled), HeadLevels(self._levels[sampled]))

    def _record(self, kind: str, sampled: bool) -> SavingsRecord:
        return self._records.setdefault((kind, sampled), SavingsRecord())

    def learn_levels(self, trees: Sequence[int], report: StepReport) -> None:
        """Record what a level took in the step that grew some trees, by how many each has."""
        if trees and len(trees) == report.head_rows:
            level_ms = min(report.head_ms / sum(trees), SURPRISE_MAX * self._level_ms)
            self._level_ms += (level_ms - self._level_ms) * LEVEL_PACE

    def learn_right(self, of_head: bool = False) -> None:
        """Take in that a guess of the sources or of the head was right, or cannot be made yet."""
        (self._head_account if of_head else self._source_account).learn_right()

    def learn(self, report: StepReport) -> None:
        """Record what the draft head and the top-k of some rows took in a step."""
        self.head.learn(report.head_rows, report.head_ms)
        self.topk.learn(report.topk_rows, report.topk_ms)

    def choose(
        self, texts: Candidates, step_ms: float, token_ms: float, node_ms: float = 0.0
    ) -> ChosenRows:
        """Decide for every row of a round of `step_ms`, in which a token takes `token_ms`.

        `node_ms` is what one more takes in it.
        """
        rounds, self._rested = 1 + self._rested, 0
        income_ms = PROBE_SHARE / 2 * step_ms * rounds
        asking, topk = self.asking, self.topk
        price = Price(asking.fixed_ms, asking.row_ms + topk.fixed_ms + topk.row_ms)
        dear = Price(price.fixed_ms, GAIN_MIN * price.row_ms)
        asked = paying(texts.sources, dear, token_ms)
        # A loop or a quotation shows in the text itself: no probe comes upon its beginning.
        asked |= {
            place
            for place, chance in texts.copies.items()
            if chance * token_ms - node_ms > dear.row_ms
        }
        if asked:
            self._source_account.save(1.0)
        asked |= self._source_account.begun(texts.sources, asked, price)
        asked |= self._source_account.probed(texts.sources, asked, price, income_ms)
        price = self._head_price
        headed = paying(texts.heads, price, token_ms)
        if headed:
            self._head_account.save(1.0)
        headed |= self._head_account.probed(texts.probed, headed, price, income_ms)
        for record in self._records.values():
            record.rounds += rounds
        self._token_ms = token_ms
        if not (asked or headed):
            self.want_nothing()
        wanted = {
            place: texts.heads[place].levels.wanted(token_ms, self._level_ms)
            for place in sorted(headed)
        }
        return ChosenRows(asked, wanted)

    @property
    def may_rest(self) -> bool:
        """Whether a round in which no text begins may be left as it is, and nothing decided."""
        return self._rests_left > 0

    def want_something(self) -> None:
        """Let the next round be decided."""
        self._rests_left = 0

    def want_nothing(self) -> None:
        """Let the next rounds rest."""
        self._rests_left, self._rested = RESTS, 0

    def rest(self) -> None:
        """Leave a round as it is."""
        self._rests_left -= 1
        self._rested += 1

    def head_pays(self, text: TextSavings) -> bool:
        """Whether the draft head would have run for a text in the newest round."""
        return text.tokens * self._token_ms > self._head_price.row_ms

    @property
    def head_probe_is_near(self) -> bool:
        """Whether the draft head will soon be probed for texts that it is told of."""
        return self._head_account.is_near

    @property
    def _head_price(self) -> Price:
        return Price(self.head.fixed_ms, self.head.row_ms + self.asking.row_ms)

    def check(self) -> None:
        """Assert that costs are sound."""
        for cost in (self.asking, self.topk, self.head):
            cost.check()


def paying(texts: Mapping[int, TextSavings], price: Price, token_ms: float) -> set[int]:
    """Return the rows that save more than they take, if together they save what is fixed, too."""
    least = price.row_ms / token_ms
    gains = {
        index: gain
        for index, text in texts.items()
        # Most rest: they are told by what their savings are not above.
        if (text.own > least or text.record.tokens > least) and (gain := text.tokens - least) > 0.0
    }
    return {*gains} if sum(gains.values()) * token_ms > price.fixed_ms else set()
