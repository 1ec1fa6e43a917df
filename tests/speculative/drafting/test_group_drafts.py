"""Without groups no row is drafted for together."""

from typing import Any

from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.drafting.group_drafts import NoGroups
from draftwerk.speculative.rounds import NO_DRAFT, Round


def test_no_round_has_groups_and_no_draft_is_filled_in() -> None:
    groups, round_ = (
        NoGroups(Controller(), lambda _: False),
        Round(round_id=1, pipeline_slot=0, rows=()),
    )
    drafts, load = [NO_DRAFT], None
    unused: Any = load
    assert not groups.are_in(round_)
    groups.fill_in(round_, unused, drafts, 1)
    assert drafts == [NO_DRAFT]
