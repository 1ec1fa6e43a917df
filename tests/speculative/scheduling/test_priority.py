"""Priority: in the queue, in preemption and on the way back; and nobody starves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.rounds import NO_DRAFT, Decision, Round, Verdict
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.running_set import AGING_ROUNDS
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence
from tests.speculative.scheduling.scheduler_world import World, led
from tests.speculative.test_scheduler import ids, make_world, planned, submit


def decided(world: World, round_: Round, token: int = 9) -> None:
    """Commit a round: every row that samples gets one token."""
    world.scheduler.commit(
        Verdict(
            round_id=round_.round_id,
            pipeline_slot=round_.pipeline_slot,
            decisions=tuple(
                Decision(tokens=(token,) if row.samples else ()) for row in round_.rows
            ),
            report=StepReport(),
        ),
        (NO_DRAFT,) * len(round_.rows),
    )


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


@pytest.mark.parametrize("limits", [{"rows_max": 2}, {"block_count": 4}])
def test_an_urgent_request_does_not_wait_for_less_urgent_ones(limits: dict[str, int]) -> None:
    world = make_world(**{"block_count": 32, **limits})
    ahead = [submit(world, [n] * 7, tokens_max=9, priority=1) for n in (1, 2)]
    decided(world, planned(world))
    urgent = submit(world, [3] * 7, tokens_max=3, priority=0)
    round_ = planned(world)
    assert urgent.sequence_id in ids(round_)
    assert [one.tally.preemptions for one in ahead] == [0, 1], "the last in order gives way"


def test_equal_priorities_never_preempt_for_one_that_waits() -> None:
    world = make_world(rows_max=1)
    first = submit(world, [1] * 7, tokens_max=9)
    decided(world, planned(world))
    submit(world, [2] * 7)
    assert ids(planned(world)) == [first.sequence_id]
    assert world.scheduler.stats.preemptions == 0


def test_a_choice_that_waited_for_its_sibling_preempts_no_equal() -> None:
    world = make_world(rows_max=2, tokens_max=8)
    sampling = Sampling(temperature=0.0)
    leader, follower = led(
        world.sequence("pair", choice, [1] * 12, sampling, 9) for choice in (0, 1)
    )
    world.scheduler.submit(leader)
    world.scheduler.submit(follower)
    decided(world, planned(world))
    other = submit(world, [2] * 3, tokens_max=9)
    decided(world, planned(world))
    assert leader.prefilled and other.computed
    assert follower.queue_key < other.queue_key
    round_ = planned(world)
    assert ids(round_) == [leader.sequence_id, other.sequence_id]
    assert waiting(world) == [follower]
    assert world.scheduler.stats.preemptions == 0


def test_nothing_is_preempted_for_a_request_that_could_not_enter_all_the_same() -> None:
    world = make_world(block_count=5)
    urgent = submit(world, [1] * 11, tokens_max=9)
    low = submit(world, [2] * 3, tokens_max=9, priority=1)
    decided(world, planned(world))
    submit(world, [3] * 12, priority=0)  # three blocks; the less urgent one has but one
    round_ = planned(world)
    assert ids(round_) == [urgent.sequence_id, low.sequence_id]
    assert world.scheduler.stats.preemptions == 0


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
