"""A member of a search: what is computed of it, and what is pending."""

from typing import Any

from draftwerk.speculative.options.beams.members import Member


def test_accepted_nodes_are_computed_and_the_rest_is_pending() -> None:
    memory: Any = None
    member = Member(1, [1, 2, 3, 4, 5], memory, base=2, sent_count=0, path=(0, 3))
    assert (member.computed, member.pending, member.is_open) == (4, 1, False)
    member.sent_count = 5
    assert member.is_open
    member.origin = 7
    assert not member.is_open
