"""Prompts computed apart: who goes there, in what chunks, and how a text begins after it."""

from random import Random

from draftwerk.speculative.protocol.rounds import Decision, Round, Verdict
from draftwerk.speculative.protocol.step_report import NO_STEP
from draftwerk.speculative.requests.sequence_progress import SequenceProgress
from draftwerk.speculative.scheduler.scheduler import RoundLimits
from tests.speculative.scheduler.scheduler_world import World
from tests.speculative.scheduler.test_scheduler import decide, ids, make_world, planned, submit

LONG = [1 + n % 7 for n in range(20)]
SHORT = [9, 8, 9]
LIMITS = RoundLimits(tokens_max=16, inline_max=4)


def apart(processes: int = 1, **limits: int) -> World:
    world = make_world(**{"tokens_max": 16, "inline_max": 4, **limits})
    for process in range(processes):
        world.scheduler.prefill.note(process, up=True)
    return world


def chunk(world: World) -> Round:
    round_ = world.scheduler.prefill.plan()
    world.scheduler.check()
    assert round_ is not None
    return round_


def answered(world: World, round_: Round, error: str = "") -> list[SequenceProgress]:
    decisions = tuple(Decision(error=error) for _ in round_.rows)
    verdict = Verdict(round_.round_id, round_.pipeline_slot, decisions, NO_STEP)
    progress = world.scheduler.prefill.commit(verdict)
    world.scheduler.check()
    return progress


def test_a_long_prompt_is_computed_apart_but_for_its_last_token() -> None:
    world = apart()
    sequence = submit(world, LONG)
    assert world.scheduler.plan() is None, "nothing of it is for those that decode"
    first = chunk(world)
    assert [(row.start, row.stop, row.samples) for row in first.rows] == [(0, 16, False)]
    assert world.scheduler.prefill.plan() is None, "a process has one round at a time"
    answered(world, first)
    last = chunk(world)
    assert [(row.start, row.stop) for row in last.rows] == [(16, 19)]
    assert world.scheduler.plan() is None, "it is not handed over yet"
    answered(world, last)
    (row,) = planned(world).rows
    assert (row.start, row.stop, row.samples) == (19, 20, True)
    assert row.new_sequence == sequence.new_sequence()
    assert row.blocks == tuple(sequence.table.blocks)
    assert world.scheduler.stats.prefilled_apart == 19


def test_a_block_is_left_alone_while_a_round_may_still_write_to_it() -> None:
    """It may have belonged to a text that has ended, and whose row in that round is in vain."""
    world = apart()
    sequence = submit(world, LONG)
    world.scheduler.plan()
    lane, blocks = world.scheduler.prefill, sequence.table.blocks
    assert lane.plan(lambda: {blocks[-1]}) is None
    round_ = lane.plan(lambda: set(range(100)) - set(blocks))
    assert round_ is not None
    answered(world, round_)


def test_a_state_is_left_alone_while_a_round_may_still_write_to_it() -> None:
    limits = RoundLimits(pipeline_depth=2, run_ahead=True, tokens_max=16, inline_max=4)
    world = World(Random(1), block_count=40, block_size=4, limits=limits, state_slots=12)
    world.scheduler.prefill.note(0, up=True)
    ended = submit(world, SHORT)
    first, second = planned(world), planned(world)
    world.scheduler.cancel(ended.request.request_id)
    decide(world, first, Decision(tokens=(7,)))
    blocks = world.scheduler.pool.take(2)  # of the text that has ended, to be written still
    assert blocks is not None
    submit(world, LONG)
    assert world.scheduler.plan() is None
    assert world.scheduler.plan_apart() is None
    decide(world, second, Decision(tokens=(7,)))
    round_ = world.scheduler.plan_apart()
    assert round_ is not None and round_.rows[0].state is not None
    world.scheduler.pool.drop(blocks)
    answered(world, round_)


def test_a_state_goes_back_to_where_it_was_when_its_process_has_gone() -> None:
    world = World(Random(1), block_count=40, block_size=4, limits=LIMITS, state_slots=12)
    lane = world.scheduler.prefill
    for process in range(2):
        lane.note(process, up=True)
    submit(world, LONG)
    assert world.scheduler.plan() is None
    answered(world, first := chunk(world))
    lost = chunk(world)
    lane.note(lost.pipeline_slot, up=False)
    again = chunk(world)
    states = [round_.rows[0].state for round_ in (first, lost, again)]
    assert states[0] and states[1] and states[2]
    assert states[0].target == states[1].source == states[2].source
    assert lost.rows[0].start == again.rows[0].start == 16
    answered(world, again)


def test_every_chunk_tells_all_that_the_process_must_know() -> None:
    world = apart()
    submit(world, LONG)
    world.scheduler.plan()
    for stop in (16, 19):
        (row,) = (round_ := chunk(world)).rows
        assert row.new_sequence is not None
        assert row.new_sequence.tokens[:stop] == tuple(LONG[:stop])
        answered(world, round_)


def test_a_short_prompt_goes_along_with_those_that_decode() -> None:
    world = apart()
    submit(world, SHORT)
    submit(world, LONG)
    assert ids(planned(world)) == [1]
    assert ids(chunk(world)) == [2]


def test_what_a_round_takes_along_is_bounded() -> None:
    world = apart()
    submit(world, SHORT)
    submit(world, [5, 6, 7])
    assert ids(planned(world)) == [1]
    assert ids(chunk(world)) == [2]


def test_short_prompts_take_turns_where_texts_are_decoded_rather_than_wait() -> None:
    world = apart(inline_max=3)
    submit(world, LONG)
    submit(world, SHORT)
    submit(world, [5, 6, 7])
    first = planned(world)
    assert ids(first) == [2], "two would be too much for one round"
    assert ids(chunk(world)) == [1]
    decide(world, first, Decision(tokens=(4,)))
    assert ids(planned(world)) == [2, 3]


def test_what_follows_a_prefix_hit_is_no_long_prompt() -> None:
    world = apart()
    submit(world, LONG)
    world.scheduler.plan()
    while (round_ := world.scheduler.prefill.plan()) is not None:
        answered(world, round_)
    submit(world, LONG[:16] + SHORT)
    assert ids(planned(world)) == [1, 2]


def test_prompts_wait_while_there_is_enough_to_do_and_short_ones_overtake() -> None:
    world = apart()
    for prompt in (LONG, LONG[::-1], SHORT):
        submit(world, prompt)
    assert ids(planned(world)) == [3]
    assert [one.sequence_id for one in world.scheduler.prefill.members] == [1]
    assert world.scheduler.load.waiting == 1


def test_an_urgent_prompt_does_not_wait_for_one_that_is_being_read() -> None:
    world = apart()
    submit(world, LONG)
    world.scheduler.plan()
    round_ = chunk(world)
    submit(world, LONG[::-1], priority=-1)
    world.scheduler.plan()
    answered(world, round_)
    assert ids(chunk(world)) == [2], "its chunks come first"


def test_two_processes_compute_two_prompts() -> None:
    world = apart(2)
    submit(world, LONG)
    submit(world, LONG[::-1])
    world.scheduler.plan()
    first, second = chunk(world), chunk(world)
    assert (ids(first), ids(second)) == ([1], [2])
    assert {first.pipeline_slot, second.pipeline_slot} == {0, 1}


def test_without_a_process_prompts_are_read_where_texts_are_decoded() -> None:
    world = apart()
    submit(world, LONG)
    world.scheduler.plan()
    answered(world, chunk(world))
    chunk(world)
    world.scheduler.prefill.note(0, up=False)
    world.scheduler.check()
    (row,) = planned(world).rows
    assert (row.start, row.stop, row.samples) == (16, 20, True), "what was computed stays"


def test_a_process_that_comes_takes_over_a_prompt_that_is_half_read() -> None:
    world = make_world(tokens_max=16, inline_max=2)
    sequence = submit(world, LONG)
    decide(world, planned(world), Decision())
    world.scheduler.prefill.note(0, up=True)
    assert world.scheduler.plan() is None
    answered(world, chunk(world))
    (row,) = planned(world).rows
    assert (row.start, row.new_sequence, row.new_token_ids) == (19, None, ())
    assert sequence.sent_count == len(LONG)


def test_a_prompt_that_is_cancelled_keeps_its_blocks_until_its_answer() -> None:
    world = apart()
    sequence = submit(world, LONG)
    world.scheduler.plan()
    round_ = chunk(world)
    world.scheduler.cancel("r0")
    assert sequence.table.blocks and not sequence.ended
    answered(world, round_)
    assert sequence.ended and world.scheduler.pool.used == 0


def test_a_prompt_that_fails_leaves_nothing() -> None:
    world = apart()
    submit(world, LONG)
    world.scheduler.plan()
    (progress,) = answered(world, chunk(world), error="odd")
    assert (progress.finish_reason, progress.error) == ("error", "odd")
    assert world.scheduler.pool.used == world.scheduler.pool.cached == 0


def test_a_prompt_in_the_lane_that_is_not_computed_may_be_preempted() -> None:
    world = apart()
    sequence = submit(world, LONG)
    world.scheduler.plan()
    world.scheduler.running_set.preempt(sequence)
    world.scheduler.check()
    assert not world.scheduler.prefill.members
