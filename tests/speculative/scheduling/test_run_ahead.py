"""Rounds that are planned while another one runs: what they hold, and when there is none."""

from random import Random

import msgspec

from draftwerk.actors.tier_two.slots_in_flight import blocks_in_flight, states_in_flight
from draftwerk.speculative.rounds import Decision, Round
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.test_scheduler import submit
from tests.support.rounds import verdict_on

AHEAD = RoundLimits(pipeline_depth=2, run_ahead=True, rows_max=4, tokens_max=24, draft_max=4)


def ahead(block_count: int = 40, state_slots: int = 0, **limits: int) -> World:
    return World(
        Random(1),
        block_count=block_count,
        block_size=4,
        limits=msgspec.structs.replace(AHEAD, **limits),
        state_slots=state_slots,
    )


def plan(world: World) -> Round:
    round_ = world.scheduler.plan()
    world.scheduler.check()
    assert round_ is not None
    return round_


def answer(world: World, round_: Round, *texts: tuple[int, ...]) -> list[int]:
    """Commit a round with these tokens for its rows; returns the ids that made progress."""
    decisions = [Decision(tokens=text) for text in texts]
    updates = world.scheduler.commit(verdict_on(round_, *decisions))
    world.scheduler.check()
    return [update.sequence.sequence_id for update in updates]


def test_a_decoding_row_is_continued_before_it_is_answered() -> None:
    world = ahead()
    one = submit(world, [1, 2, 3], tokens_max=9)
    first, second = plan(world), plan(world)
    assert world.scheduler.plan() is None, "two are under way"
    (row,) = second.rows
    assert row.options.continues and row.samples
    assert not first.rows[0].options.continues
    assert row.new_token_ids == () and row.new_sequence is None
    # Slots for the token that the first round decides at least, and for every draft of both.
    most = 3 + 1 + first.rows[0].draft_max + row.draft_max
    assert len(row.blocks) * world.scheduler.pool.block_size >= most
    assert answer(world, first, (7,)) == [one.sequence_id]
    third = plan(world)
    assert third.rows[0].options.continues
    assert third.rows[0].new_token_ids == (), "the device knows what it decided"


def test_the_rest_of_a_prompt_follows_its_beginning_at_once() -> None:
    world = ahead()
    submit(world, [1 + n % 9 for n in range(40)], tokens_max=9)
    first, second = plan(world), plan(world)
    assert (first.rows[0].start, first.rows[0].stop) == (0, 24)
    assert (second.rows[0].start, second.rows[0].stop) == (24, 40)
    assert not second.rows[0].options.continues
    assert second.rows[0].samples


def test_nothing_is_planned_behind_a_long_round_so_that_newcomers_wait_for_one() -> None:
    world = ahead(80, tokens_max=128)
    submit(world, [1 + n % 9 for n in range(26)], tokens_max=2)
    world.scheduler.submit(
        world.sequence("long", 0, [1 + n % 7 for n in range(90)], Sampling(), tokens_max=2)
    )
    first = plan(world)
    assert sum(row.stop - row.start for row in first.rows) == 116
    assert world.scheduler.plan() is None
    answer(world, first, (7,), (7,))
    assert len(plan(world).rows) == 2


def test_a_text_that_the_round_under_way_ends_at_any_rate_is_not_continued() -> None:
    world = ahead()
    submit(world, [1, 2, 3], tokens_max=1)
    plan(world)
    assert world.scheduler.plan() is None


def test_a_request_that_comes_while_a_round_runs_shares_the_next() -> None:
    world = ahead()
    submit(world, [1, 2, 3], tokens_max=9)
    plan(world)
    new = submit(world, [4, 5], tokens_max=9)
    rows = plan(world).rows
    assert [row.options.continues for row in rows] == [True, False]
    assert rows[1].sequence_id == new.sequence_id


def test_what_is_decided_after_a_text_has_ended_is_dropped_and_counted() -> None:
    world = ahead()
    one = submit(world, [1, 2, 3], tokens_max=9)
    first, second = plan(world), plan(world)
    world.scheduler.cancel(one.request.request_id)
    assert answer(world, first, (7,)) == []
    assert one.ended
    assert world.scheduler.pool.used == 0
    assert answer(world, second, (8, 9)) == []
    assert world.scheduler.stats.overrun_tokens == 2
    assert one.tokens == [1, 2, 3]


def test_blocks_of_an_ended_row_are_not_free_for_loads_until_it_is_answered() -> None:
    world = ahead()
    one = submit(world, [1, 2, 3], tokens_max=9)
    first, second = plan(world), plan(world)
    world.scheduler.cancel(one.request.request_id)
    answer(world, first, (7,))
    assert blocks_in_flight(world.scheduler.rounds_in_flight()) >= set(second.rows[0].blocks)


def test_so_it_is_with_slots_of_states() -> None:
    world = ahead(state_slots=9)
    one = submit(world, [1, 2, 3, 4, 5], tokens_max=9)
    first, second = plan(world), plan(world)
    world.scheduler.cancel(one.request.request_id)
    answer(world, first, (7,))
    state = second.rows[0].options.state
    assert state is not None and state.saves
    used = {state.source, state.target, *(slot for _, slot in state.saves)}
    assert states_in_flight(world.scheduler.rounds_in_flight()) == used


def test_where_the_longest_outcome_does_not_fit_the_next_round_waits() -> None:
    world = ahead(block_count=2)
    submit(world, [1, 2, 3, 4, 5, 6, 7], tokens_max=4, draft_max=0)
    first, second = plan(world), plan(world)
    answer(world, first, (8,))
    assert world.scheduler.plan() is None, "a ninth slot is not to be had"
    answer(world, second, (9,))
    assert world.scheduler.plan() is None


def test_an_urgent_request_preempts_rows_that_would_run_ahead() -> None:
    world = ahead(rows_max=1)
    low = submit(world, [1, 2, 3], tokens_max=20, priority=1)
    under_way = [plan(world)]
    urgent = submit(world, [9] * 3, tokens_max=2, priority=-1)
    for _ in range(4):
        while (found := world.scheduler.plan()) is not None:
            under_way.append(found)
        if urgent.in_flight:
            break
        oldest = under_way.pop(0)
        answer(world, oldest, *[(7,) for _ in oldest.rows])
    assert urgent.in_flight, "it waited behind rows that ran ahead"
    assert low.tally.preemptions == 1
