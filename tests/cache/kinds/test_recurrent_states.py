"""Slots of recurrent states: never written where they are read, and kept at the ends of blocks."""

import pytest

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.recurrent_states import START, RowState, SequenceStates, StateRules

NAMES = [b"one", b"two", b"three", b"four", b"five"]
SIZE = 4


def rules(count: int = 12, own: int = 2, interval: int = 100 * SIZE) -> StateRules:
    return StateRules(BlockPool(count, 1), own, SIZE, interval)


def entered(of: StateRules, names: list[bytes]) -> tuple[SequenceStates, int]:
    states = SequenceStates(of)
    found = states.enter(names)
    assert found is not None
    return states, found


def begun(states: SequenceStates, start: int, stop: int, reach: int, prompt_count: int) -> RowState:
    """Return what a row does of a sequence with a prompt of so many tokens."""
    states.prompt_count = prompt_count
    return states.row_state(start, stop, reach)


def pooling_output(of: StateRules, prompt_count: int) -> SequenceStates:
    """Return the states of a sequence that has read a prompt of its own."""
    states, _ = entered(of, [])
    begun(states, 0, prompt_count, prompt_count, prompt_count)
    states.end_row(0, prompt_count, NAMES)
    return states


def test_a_row_reads_what_the_one_before_has_written() -> None:
    states, found = entered(rules(own=3), [])
    assert found == 0
    first, second = (begun(states, at, at + 1, at + 1, 1) for at in (0, 1))
    assert first.source == START
    assert second.source == first.target != second.target
    states.check()
    states.end_row(0, 1, [])
    third = begun(states, 2, 3, 3, 1)
    assert third.target not in (second.source, second.target)
    states.end_row(1, 2, [])
    # The first row's slot is free: nothing that is under way reads it.
    assert begun(states, 3, 4, 4, 1).target == first.target
    states.check()


def test_a_prompt_goes_on_from_the_last_snapshot_among_its_blocks() -> None:
    of = rules()
    pooling_output(of, 2 * SIZE + 1).leave()
    states, found = entered(of, NAMES[:3])
    assert found == 2
    assert begun(states, 2 * SIZE, 13, 13, 13).source == of.pool.find(b"two")
    states.end_row(2 * SIZE, 13, NAMES)
    states.leave()
    assert entered(of, NAMES[:1])[1] == 0
    assert entered(of, [*NAMES[:1], b"other"])[1] == 0


def test_where_a_prompt_parts_from_others_a_snapshot_is_made() -> None:
    of = rules()
    pooling_output(of, 4 * SIZE + 1).leave()
    parting, found = entered(of, NAMES[:2])
    assert (found, parting.parting) == (0, 2 * SIZE)
    use = begun(parting, 0, 3 * SIZE + 2, 3 * SIZE + 2, 3 * SIZE + 2)
    assert [position for position, _ in use.saves] == [2 * SIZE, 3 * SIZE]
    parting.end_row(0, 3 * SIZE + 2, [*NAMES[:2], b"other"])
    parting.leave()
    assert entered(of, NAMES[:2])[1] == 2


def test_a_long_prompt_has_some_on_its_way() -> None:
    states, _ = entered(rules(interval=2 * SIZE), [])
    use = begun(states, 0, 18, 18, 18)
    assert [position for position, _ in use.saves] == [8, 16]


def test_a_reply_has_one_the_newest() -> None:
    of = rules()
    states = pooling_output(of, 5)
    for start, end in ((5, 7), (7, 9), (9, 12), (12, 13)):
        begun(states, start, start + 1, start + 4, 5)
        states.end_row(start, end, NAMES)
    assert [name in of.pool.names for name in NAMES[:4]] == [True, False, True, False]
    states.leave()
    assert of.pool.cached == 2


def test_one_that_was_not_reached_is_not_kept() -> None:
    of = rules()
    states = pooling_output(of, 5)
    use = begun(states, 5, 6, 9, 5)
    assert [position for position, _ in use.saves] == [8]
    states.end_row(5, 7, NAMES[:1])
    states.leave()
    assert list(of.pool.names) == [b"one"]


@pytest.mark.parametrize("drafted", [0, 1])
def test_one_that_only_drafts_reach_leaves_room_for_a_sequence_to_enter(drafted: int) -> None:
    of = rules(count=5)
    states = pooling_output(of, 5)
    stop = 2 * SIZE - drafted
    assert len(begun(states, 5, stop, 2 * SIZE, 5).saves) == 1 - drafted
    assert (SequenceStates(of).enter(NAMES[:1]) is None) == (not drafted)


@pytest.mark.parametrize("under_way", [0, 1, 2])
def test_all_comes_home(under_way: int) -> None:
    of = rules(own=3)
    pooling_output(of, 9).leave()
    states, _ = entered(of, NAMES[:2])
    for row in range(under_way):
        begun(states, 8 + row, 9 + row, 12 + row, 9)
    states.leave()
    assert of.pool.used == 0
    of.pool.check()


def test_branches_go_on_from_a_snapshot_in_turns() -> None:
    """Some in the first round, the others in the next: the snapshot is held until the last."""
    of = rules()
    pooling_output(of, 2 * SIZE + 1).leave()
    states = SequenceStates(of, count=6)
    assert states.enter(NAMES[:2]) == 2
    snapshot = states.latest
    first = states.go_on(snapshot)
    states.end_branches([first.target, snapshot, snapshot])
    states.check()
    assert of.pool.holders(snapshot) == 1
    later = [states.go_on(source) for source in (first.target, snapshot, snapshot)]
    assert len({first.target, *(use.target for use in later)}) == 4
    states.check()
    # The second branch has two children, the others none.
    states.end_branches([later[1].target, later[1].target])
    states.check()
    assert of.pool.holders(snapshot) == 0
    states.leave()
    assert of.pool.used == 0


def test_snapshots_give_way_to_sequences_and_these_to_nothing() -> None:
    of = rules(count=5)
    pooling_output(of, 5).leave()
    assert of.pool.cached == 1
    first, second = (entered(of, [])[0] for _ in range(2))
    assert of.pool.cached == 1
    third = SequenceStates(of)
    assert third.enter([]) is None
    assert third.enter(NAMES[:1]) is None
    assert of.pool.cached == 1
    # Without room there are no snapshots.
    assert begun(first, 0, 5, 5, 5).saves != ()
    assert begun(second, 0, 5, 5, 5).saves == ()
