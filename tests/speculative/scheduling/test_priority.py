"""Priority: in the queue, in preemption and on the way back; and nobody starves."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.rounds import Decision, Round
from draftwerk.speculative.running_set import AGING_ROUNDS
from draftwerk.speculative.sequence import Sequence
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.test_scheduler import ids, make_world, planned, submit
from tests.support.rounds import verdict_on


def decided(world: World, round_: Round, token: int = 9) -> None:
    """Commit a round: every row that samples gets one token."""
    decisions = [Decision(tokens=(token,) if row.samples else ()) for row in round_.rows]
    world.scheduler.commit(verdict_on(round_, *decisions))


def waiting(world: World) -> list[Sequence]:
    return list(world.scheduler.running_set.waiting)


def test_the_queue_is_in_order_of_priority_and_then_of_arrival() -> None:
    world = make_world()
    third, first, fourth, second = (submit(world, priority=p) for p in (1, 0, 1, 0))
    assert waiting(world) == [first, second, third, fourth]


def test_the_least_urgent_makes_room_though_it_is_older() -> None:
    world = make_world(block_count=4)
    old = submit(world, [1] * 5, tokens_max=9, priority=1)
    young = submit(world, [2] * 7, tokens_max=9)
    for _ in range(2):
        decided(world, planned(world))
    round_ = planned(world)
    assert ids(round_) == [young.sequence_id]
    assert (old.tally.preemptions, young.tally.preemptions) == (1, 0)
    assert waiting(world) == [old]


def test_a_preempted_sequence_does_not_overtake_a_more_urgent_one() -> None:
    world = make_world(block_count=4)
    low = submit(world, [1] * 5, tokens_max=9, priority=1)
    running = submit(world, [2] * 7, tokens_max=9)
    for _ in range(2):
        decided(world, planned(world))
    urgent = submit(world, [3] * 12)
    assert ids(planned(world)) == [running.sequence_id]
    assert low.tally.preemptions == 1
    last = submit(world, [4] * 8, priority=1)
    assert waiting(world) == [urgent, low, last]
    world.scheduler.check()


def test_an_urgent_prompt_is_read_before_the_rest_of_another() -> None:
    world = make_world(tokens_max=8, block_count=64)
    slow = submit(world, [1] * 20, priority=1)
    decided(world, planned(world))
    urgent = submit(world, [2] * 12, priority=0)
    for expected in ([urgent], [urgent, slow], [urgent, slow]):
        round_ = planned(world)
        assert ids(round_) == [sequence.sequence_id for sequence in expected]
        decided(world, round_)
    assert slow.computed > 8


def test_a_low_priority_waits_for_so_many_rounds_of_urgent_work_and_no_longer() -> None:
    world = make_world(rows_max=1)
    submit(world, [1], tokens_max=1)
    low = submit(world, [5, 5, 5], tokens_max=1, priority=1)
    for _ in range(2 * AGING_ROUNDS):
        submit(world, [1, 2], tokens_max=1)
        decided(world, planned(world))
        if low.ended:
            break
    assert low.ended, "it starved"
    assert world.scheduler.stats.rounds > AGING_ROUNDS, "it went before more urgent ones"


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40))
def test_what_is_ahead_in_the_queue_is_more_urgent_or_older(steps: list[tuple[int, bool]]) -> None:
    world = make_world(block_count=4, rows_max=2)
    for priority, runs in steps:
        submit(world, [1 + priority % 3] * 3, tokens_max=2, priority=priority)
        if runs and (round_ := world.scheduler.plan()) is not None:
            decided(world, round_)
    world.scheduler.check()
    ordered = waiting(world)
    for ahead, behind in pairwise(ordered):
        assert (
            ahead.request.priority <= behind.request.priority or ahead.queue_key < behind.queue_key
        )
