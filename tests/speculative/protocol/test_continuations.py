"""Continuing rows: where each goes on, and which are left out."""

import pytest

from draftwerk.speculative.protocol.continuations import NOT_COMPUTED, Continuations, spread
from draftwerk.speculative.rounds import Decision, NewSequence, Round, Row
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import make_round, make_row

STOP = 9


def first(sequence_id: int, tokens_left: int = 10) -> Row:
    """Return the row of a prompt of three tokens."""
    sampling = Sampling(stop_token_ids=(STOP,))
    return make_row(
        0,
        3,
        sequence_id=sequence_id,
        draft_max=4,
        blocks=(0, 1),
        new_sequence=NewSequence((1, 2, 3), 3, sampling),
        tokens_left=tokens_left,
    )


def following(sequence_id: int, draft_max: int = 4) -> Row:
    """Return a row that continues the sequence's first one."""
    return make_row(
        3,
        4,
        sequence_id=sequence_id,
        draft_max=draft_max,
        blocks=(0, 1, 2),
        tokens_left=99,
        continues=True,
    )


def round_of(*rows: Row, finished_ids: tuple[int, ...] = ()) -> Round:
    return make_round(*rows, round_id=1, finished_ids=finished_ids)


def answered(decision: Decision, tokens_left: int = 10) -> Continuations:
    """Return what is known once sequence 1 has this decision for its first row."""
    found = Continuations()
    found.learn(found.resolve(round_of(first(1, tokens_left))), [decision])
    found.check({1: 3})
    return found


def test_a_row_goes_on_with_the_tokens_that_were_decided() -> None:
    found = answered(Decision(tokens=(4, 5)))
    (row,) = found.resolve(round_of(following(1))).round.rows
    assert not row.options.continues
    assert (row.start, row.stop) == (4, 5), "the last token's KV is still to be computed"
    assert row.new_token_ids == (4, 5)
    assert row.tokens_left == 8
    assert row.draft_max == 4


def test_drafts_end_with_the_text() -> None:
    found = answered(Decision(tokens=(4, 5)), tokens_left=4)
    (row,) = found.resolve(round_of(following(1))).round.rows
    assert (row.tokens_left, row.draft_max) == (2, 1)


@pytest.mark.parametrize(
    ("decision", "tokens_left"),
    [
        (Decision(tokens=(4, STOP)), 10),
        (Decision(tokens=(4, 5)), 2),
        (Decision(error="it cannot be computed"), 10),
    ],
    ids=["stop token", "length", "error"],
)
def test_a_text_that_has_ended_is_left_out(decision: Decision, tokens_left: int) -> None:
    found = answered(decision, tokens_left)
    planned = round_of(following(1), first(2))
    resolved = found.resolve(planned)
    assert [row.sequence_id for row in resolved.round.rows] == [2]
    own = Decision(tokens=(7,))
    assert spread(resolved, planned, (own,), NOT_COMPUTED) == (NOT_COMPUTED, own)


def test_an_ended_text_stays_ended_in_the_rounds_after() -> None:
    found = answered(Decision(tokens=(STOP,)))
    resolved = found.resolve(round_of(following(1)))
    found.learn(resolved, [])
    assert not found.resolve(round_of(following(1))).round.rows


def test_a_sequence_that_comes_back_is_another_one() -> None:
    found = answered(Decision(tokens=(STOP,)))
    found.resolve(round_of(first(1), finished_ids=(1,)))
    assert not found.ends[1].ended
    assert found.ends[1].decided == ()


def test_a_sequence_that_is_not_known_is_left_out() -> None:
    assert not Continuations().resolve(round_of(following(1))).round.rows


def test_a_round_of_ordinary_rows_is_as_it_was() -> None:
    planned = round_of(first(1), first(2))
    resolved = Continuations().resolve(planned)
    assert resolved.round is planned
    decisions = (Decision(tokens=(4,)), Decision(tokens=(5,)))
    assert spread(resolved, planned, decisions, NOT_COMPUTED) is decisions


@pytest.mark.parametrize("known", [{}, {1: 2}, {1: 4}, {2: 3}])
def test_an_end_that_does_not_follow_what_is_known_is_found(known: dict[int, int]) -> None:
    with pytest.raises(AssertionError, match="sequence"):
        answered(Decision(tokens=(4, 5))).check(known)
