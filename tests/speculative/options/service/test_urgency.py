"""A more urgent request does not wait for less urgent ones, and preempts none for nothing."""

import pytest

from draftwerk.speculative.sampling import Sampling
from tests.speculative.scheduling.scheduler_world import led
from tests.speculative.scheduling.test_priority import decided, waiting
from tests.speculative.test_scheduler import ids, make_world, planned, submit


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
