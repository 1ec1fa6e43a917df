"""Which rows' sources run, where no row's drafts pay."""

from dataclasses import dataclass, field

from draftwerk.speculative.drafting.breaker import Breaker
from draftwerk.speculative.drafting.rationing import (
    PROBES_SAVED,
    WEIGHT_ALWAYS_ASKED,
    Choice,
    DraftRationing,
)
from draftwerk.speculative.sources.draft_head import HeadSource


@dataclass
class PlainRow:
    """A row without a draft head."""

    breaker: Breaker = field(default_factory=Breaker)
    head: HeadSource | None = None


def test_a_row_that_holds_up_the_others_is_asked_when_nothing_is_saved() -> None:
    rationing = DraftRationing()
    rows = [(PlainRow(), WEIGHT_ALWAYS_ASKED + 1.0), (PlainRow(), 1.0)]
    chosen = [rationing.choose(turn, rows, 0.0) for turn in range(PROBES_SAVED)]
    rationing.check()
    probes = [choice for choices in chosen for choice in choices if choice.wants_topk]
    assert len(probes) == PROBES_SAVED, "as many as may be saved up for"
    assert chosen[-1] == [Choice(ask=True, wants_topk=False), Choice(ask=False, wants_topk=False)]
    assert all(choices[0].ask for choices in chosen)
