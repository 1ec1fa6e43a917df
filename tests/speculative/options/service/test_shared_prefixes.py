"""Prompts that begin alike and come together are read once, and none waits for nothing."""

from functools import partial

from draftwerk.speculative.options.service.shared_prefixes import SHARED_MIN
from draftwerk.speculative.rounds import Round
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.scheduling.test_priority import decided
from tests.speculative.test_scheduler import make_world, planned
from tests.speculative.test_scheduler import submit as submit_any

SIZE = 4
SHARED = [1, 2, 3, 4] * 10
"""Ten blocks."""
submit = partial(submit_any, tokens_max=4)


def world_of() -> World:
    return make_world(block_count=200, block_size=SIZE, tokens_max=24, draft_max=0)


def read(round_: Round) -> dict[int, int]:
    """Return the tokens of each sequence in a round."""
    return {row.sequence_id: row.stop - row.start for row in round_.rows}


def total_read(world: World, rounds: int = 12) -> int:
    """Return how many tokens are computed until nothing is left to do."""
    count = 0
    for _ in range(rounds):
        round_ = world.scheduler.plan()
        if round_ is None:
            break
        count += sum(read(round_).values())
        decided(world, round_)
        world.check()
    return count


def test_what_two_prompts_begin_with_is_read_once() -> None:
    world = world_of()
    first, second = (submit(world, [*SHARED, *[end] * 6]) for end in (5, 6))
    for count in (24, 22):
        round_ = planned(world)
        assert read(round_) == {first.sequence_id: count}
        decided(world, round_)
    assert second.turn.awaited == (first, len(SHARED))
    alone, both = world_of(), world_of()
    submit(alone, [*SHARED, *[5] * 6])
    for end in (5, 6, 7):
        submit(both, [*SHARED, *[end] * 6])
    # Each of the others reads its own six tokens and decodes three more.
    assert total_read(both) == total_read(alone) + 2 * (6 + 3)
    assert both.scheduler.stats.prefix_hits == 2 * len(SHARED)


def test_a_prompt_that_shares_little_does_not_wait() -> None:
    world = world_of()
    little = SHARED[: (SHARED_MIN - 1) * SIZE]
    first = submit(world, [*little, *[5] * 8])
    second = submit(world, [*little, *[6] * 8])
    assert read(planned(world)) == {first.sequence_id: 20, second.sequence_id: 4}


def test_a_prompt_goes_on_by_itself_when_the_other_is_gone() -> None:
    world = world_of()
    first, second = (submit(world, [*SHARED, end]) for end in (5, 6))
    decided(world, planned(world))
    round_ = planned(world)
    assert second.turn.awaited == (first, len(SHARED))
    world.scheduler.cancel(first.request.request_id)
    decided(world, round_)
    found = read(planned(world))
    assert [*found] == [second.sequence_id] and second.turn.awaited is None


def test_nothing_waits_for_a_prompt_that_goes_behind_it() -> None:
    world = world_of()
    late = submit(world, [*SHARED, 5], priority=2)
    decided(world, planned(world))
    first = submit(world, [*SHARED, 6])
    assert first.sequence_id in read(planned(world))
    assert late.turn.awaited is None is first.turn.awaited


def test_what_is_cached_already_is_not_waited_for() -> None:
    world = world_of()
    submit(world, [*SHARED, 5])
    total_read(world)
    first, second = (submit(world, [*SHARED, *[end] * 3]) for end in (6, 7))
    assert read(planned(world)) == {first.sequence_id: 3, second.sequence_id: 3}
