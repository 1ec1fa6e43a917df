"""The scheduler: random stories first, then each of its decisions by itself."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Draft, Round, chain
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED, Feedback, TokenTopK
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sequence import Sequence, SequenceProgress
from tests.speculative.scheduling.scheduler_world import World, led, live, story
from tests.support.rounds import verdict_on

GREEDY = Sampling(temperature=0.0)
PROMPT = [1, 2, 3, 1, 2, 3, 1, 2]


# --- stories --------------------------------------------------------------------------------------


def test_every_story_ends_well_and_everything_happens_in_some() -> None:
    happened = sum((story(seed) for seed in range(120)), Counter[str]())
    for event in (
        "stop",
        "length",
        "failed",
        "cancelled waiting",
        "cancelled running",
        "cancelled in flight",
        "cancelled preempted",
        "chunks",
        "drafting rows",
        "accepted",
        "rejected",
        "preemptions",
        "resumed with text",
        "prefix hits",
        "followers' hits",
        "expired",
        "unmet",
    ):
        assert happened[event] > 0, (event, happened)


def test_one_seed_gives_one_run() -> None:
    assert story(11) == story(11)


class PlannerMachine(RuleBasedStateMachine):
    """The same world, with Hypothesis as its author: it shortens a story that ends badly."""

    @initialize(
        seed=st.integers(0, 2**16),
        pipeline_depth=st.integers(1, 3),
        rows_max=st.integers(1, 5),
        tokens_max=st.integers(1, 20),
        draft_max=st.integers(0, 6),
        block_count=st.integers(3, 12),
        block_size=st.integers(2, 4),
    )
    def start(self, seed: int, block_count: int, block_size: int, **limits: int) -> None:
        self.world = World(
            Random(seed),
            block_count=block_count,
            block_size=block_size,
            limits=RoundLimits(**limits),
        )

    @rule()
    def submit(self) -> None:
        self.world.submit()

    @rule()
    def plan(self) -> None:
        self.world.plan()

    @precondition(lambda self: self.world.verdicts)
    @rule(error=st.sampled_from([False, False, False, True]))
    def commit(self, error: bool) -> None:
        self.world.commit(error)

    @precondition(lambda self: live(self.world))
    @rule(number=st.integers(0, 20), whole=st.booleans())
    def cancel(self, number: int, whole: bool) -> None:
        sequences = live(self.world)
        self.world.cancel(sequences[number % len(sequences)], whole)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestPlannerMachine = PlannerMachine.TestCase
TestPlannerMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# --- one decision at a time -----------------------------------------------------------------------


def make_world(*, block_count: int = 32, block_size: int = 4, **limits: Any) -> World:
    return World(
        Random(1),
        block_count=block_count,
        block_size=block_size,
        limits=RoundLimits(**{"tokens_max": 64, "draft_max": 4, **limits}),
    )


def submit(
    world: World, prompt: list[int] = PROMPT, tokens_max: int = 12, **how: object
) -> Sequence:
    """Submit a request with one choice."""
    number = len(world.wanteds)
    sequence = world.sequence(f"r{number}", 0, prompt, GREEDY, tokens_max, **how)  # type: ignore[arg-type]
    world.scheduler.submit(sequence)
    return sequence


def planned(world: World) -> Round:
    """Return the next round, which must exist, without running it."""
    round_ = world.scheduler.plan()
    assert round_ is not None
    return round_


def decide(
    world: World, round_: Round, *decisions: Decision, draft: Draft = NO_DRAFT
) -> list[SequenceProgress]:
    drafts = tuple(draft if row.samples else NO_DRAFT for row in round_.rows)
    report = StepReport(device_ms=2.5, load=StepLoad(9, 9))
    return world.scheduler.commit(verdict_on(round_, *decisions, report=report, drafts=drafts))


def ids(round_: Round) -> list[int]:
    return [row.sequence_id for row in round_.rows]


def test_a_later_row_carries_the_last_token_and_what_is_new() -> None:
    world = make_world()
    submit(world)
    decide(world, planned(world), Decision(tokens=(5,)))
    second = planned(world)
    (row,) = second.rows
    assert (row.start, row.stop, row.new_token_ids, row.new_sequence) == (8, 9, (5,), None)
    decide(world, second, Decision(tokens=(6, 7, 8), path=(0, 1)), draft=chain((6, 7, 9), "ngram"))
    (row,) = planned(world).rows
    assert (row.start, row.stop, row.new_token_ids) == (11, 12, (6, 7, 8))


def test_chunks_of_a_prompt_ride_beside_decoding_rows() -> None:
    world = make_world(tokens_max=10)
    first = submit(world)
    decide(world, planned(world), Decision(tokens=(5,)))
    second = submit(world, [4] * 20)
    round_ = planned(world)
    assert ids(round_) == [first.sequence_id, second.sequence_id]
    assert round_.rows[1].stop - round_.rows[1].start >= 8, "prompts come before drafts"
    assert not round_.rows[1].samples


@pytest.mark.parametrize(
    ("prompt", "drafts", "chunk"),
    [(4, 3, 4), (13, 2, 13), (100, 1, 14)],
    ids=["room for all", "what the prompt leaves", "an eighth"],
)
def test_drafts_have_what_waiting_prompts_leave_and_an_eighth_at_least(
    prompt: int, drafts: int, chunk: int
) -> None:
    world = make_world(tokens_max=16, draft_max=3)
    submit(world)
    decide(world, planned(world), Decision(tokens=(5,)))
    submit(world, [4] * prompt)
    one, other = planned(world).rows
    assert (one.draft_max, other.stop - other.start) == (drafts, chunk)


def test_the_budget_for_drafts_is_shared_evenly() -> None:
    world = make_world(tokens_max=12, draft_max=7)
    for n in range(4):
        submit(world, [n + 1])
    round_ = planned(world)
    decide(world, round_, *[Decision(tokens=(9,))] * 4)
    assert [row.draft_max for row in planned(world).rows] == [2, 2, 2, 2]


def test_drafts_grow_shorter_near_the_limit_of_the_pool() -> None:
    """Two rows of 8 tokens in full blocks of 4: what is free beyond them bounds their drafts."""
    lengths: list[int] = []
    for block_count in (6, 8, 12, 16):
        world = make_world(block_count=block_count, draft_max=6)
        for prompt in (PROMPT[:7], PROMPT[1:]):
            submit(world, prompt, tokens_max=20, draft_max=6)
        decide(world, planned(world), Decision(tokens=(9,)), Decision(tokens=(9,)))
        lengths.append(planned(world).rows[0].draft_max)
    assert lengths == [0, 4, 6, 6]


def test_the_youngest_sequence_makes_room_and_comes_back_first() -> None:
    world = make_world(block_count=4)
    old = submit(world, [1] * 7, tokens_max=9)
    young = submit(world, [2] * 5, tokens_max=3)
    third = submit(world, [3], tokens_max=9)
    decide(world, planned(world), Decision(tokens=(9,)), Decision(tokens=(9,)))
    round_ = planned(world)
    assert ids(round_) == [old.sequence_id, young.sequence_id]
    decide(world, round_, Decision(tokens=(9,)), Decision(tokens=(8,)))
    round_ = planned(world)
    assert ids(round_) == [old.sequence_id]
    assert round_.finished_ids == (young.sequence_id,)
    assert young.tally.preemptions == 1
    assert not young.memory.block_count
    assert world.scheduler.load.waiting == 2
    decide(world, round_, *[Decision(tokens=(9,))] * 1)
    world.scheduler.cancel("r0")
    round_ = planned(world)
    assert ids(round_) == [young.sequence_id, third.sequence_id]
    row = round_.rows[0]
    assert row.new_sequence is not None
    assert row.new_sequence.tokens == (*[2] * 5, 9, 8)
    assert row.new_sequence.prompt_count == 5


def test_each_lane_carries_its_own_sequences() -> None:
    world = make_world(pipeline_depth=2)
    submit(world, [1])
    first = planned(world)
    submit(world, [2])
    second = planned(world)
    assert (first.pipeline_slot, second.pipeline_slot) == (0, 1)
    assert not set(ids(first)) & set(ids(second))
    decide(world, second, Decision(tokens=(9,)))
    third = planned(world)
    assert third.pipeline_slot == 1
    assert ids(third) == ids(second)


def test_a_verdict_for_another_round_is_an_error() -> None:
    world = make_world()
    submit(world)
    other = replace(planned(world), round_id=99)
    with pytest.raises(AssertionError, match="another round"):
        decide(world, other, Decision(tokens=(1,)))


def test_the_next_round_carries_the_last_ones_cost() -> None:
    world = make_world()
    submit(world)
    first = planned(world)
    assert first.report == NO_STEP
    decide(world, first, Decision(tokens=(5,)))
    assert planned(world).report == StepReport(load=StepLoad(9, 9), device_ms=2.5)


def test_a_round_is_continuous_while_there_was_work_since_the_last() -> None:
    world = make_world()
    submit(world, tokens_max=2)
    first = planned(world)
    assert not first.continuous
    decide(world, first, Decision(tokens=(5,)))
    second = planned(world)
    assert second.continuous
    decide(world, second, Decision(tokens=(6,)))
    submit(world)
    assert not planned(world).continuous, "the device was idle for want of work"


# --- prefixes and choices -------------------------------------------------------------------------


def test_a_second_request_computes_only_what_the_first_did_not() -> None:
    world = make_world()
    submit(world, tokens_max=1)
    decide(world, planned(world), Decision(tokens=(5,)))
    second = submit(world, [*PROMPT, 9])
    (row,) = planned(world).rows
    assert (row.start, row.stop) == (8, 9)
    assert second.tally.cached == 8
    assert world.scheduler.stats.prefix_hits == 8
    assert world.scheduler.stats.prompt_tokens == 8 + 9


def test_a_prompt_counts_once_whatever_its_choices_and_preemptions() -> None:
    """Counters equal the sums of what clients are told."""
    world = make_world(block_count=40)
    leader, other = (world.sequence("n", choice, PROMPT, GREEDY, 12) for choice in (0, 1))
    for sequence in led([leader, other]):
        world.scheduler.submit(sequence)
    decide(world, planned(world), Decision(tokens=(5,)))
    decide(world, planned(world), Decision(tokens=(6,)), Decision(tokens=(5,)))
    stats = world.scheduler.stats
    assert (stats.prompt_tokens, stats.prefix_hits) == (len(PROMPT), 0)
    world.scheduler.running_set.preempt(leader)
    planned(world)
    assert leader.tally.preemptions == 1 and leader.memory.block_count, "it has come back"
    assert (stats.prompt_tokens, stats.prefix_hits) == (len(PROMPT), 0)
    assert leader.tally.cached == 0


def test_snapshots_give_way_to_a_text_that_enters_and_no_text_is_preempted() -> None:
    world = World(Random(1), block_count=40, block_size=4, limits=RoundLimits(), state_slots=9)
    assert world.states is not None
    pool = world.states.pool
    for first in range(4):  # each leaves a snapshot of its prompt
        submit(world, [first, *PROMPT], tokens_max=2)
        while not world.scheduler.idle:
            assert world.plan()
            world.commit()
    assert pool.cached == 4
    running = [submit(world, [9 + first, *PROMPT], tokens_max=4) for first in range(3)]
    assert ids(planned(world)) == [each.sequence_id for each in running]
    assert pool.available == 0 and world.scheduler.stats.preemptions == 0


def test_followers_wait_for_the_leader_and_find_its_prompt() -> None:
    world = make_world(tokens_max=6)
    prompt = [*PROMPT, 4]
    world.scheduler.submit(leader := world.sequence("n", 0, prompt, Sampling(seed=1), 3))
    for choice in (1, 2):
        follower = world.sequence("n", choice, prompt, Sampling(seed=1), 3)
        follower.leader = leader
        world.scheduler.submit(follower)
    round_ = planned(world)
    assert ids(round_) == [1]
    decide(world, round_, Decision())
    round_ = planned(world)
    assert ids(round_) == [1]
    decide(world, round_, Decision(tokens=(5,)))
    round_ = planned(world)
    assert ids(round_) == [1, 2, 3]
    assert [row.start for row in round_.rows] == [9, 8, 8]
    assert world.wanteds[2].sequence.memory.table.blocks[:2] == leader.memory.table.blocks[:2]


# --- endings --------------------------------------------------------------------------------------


def test_a_sequence_that_reached_no_device_is_not_closed() -> None:
    world = make_world()
    submit(world)
    world.scheduler.cancel("r0")
    submit(world, [4])
    assert planned(world).finished_ids == ()


def test_a_failed_row_fails_alone() -> None:
    world = make_world()
    submit(world, [1])
    submit(world, [2])
    new_token_ids = decide(world, planned(world), Decision(error="no luck"), Decision(tokens=(5,)))
    assert [(p.finish_reason, p.error, p.tokens) for p in new_token_ids] == [
        ("failed", "no luck", ()),
        ("", "", (5,)),
    ]
    assert world.scheduler.load.running == 1
    world.scheduler.check()


# --- cancels --------------------------------------------------------------------------------------


def test_a_sequence_cancelled_in_flight_keeps_its_blocks_until_its_verdict() -> None:
    world = make_world()
    sequence = submit(world)
    round_ = planned(world)
    world.scheduler.cancel("r0")
    world.scheduler.cancel("r0")
    assert sequence.memory.table.blocks, "a device still writes there"
    assert not world.scheduler.idle
    assert decide(world, round_, Decision(tokens=(5,))) == []
    assert world.scheduler.idle
    world.scheduler.check()


# --- the checks themselves ------------------------------------------------------------------------


def test_the_blocks_of_a_row_that_failed_are_not_served_again() -> None:
    world = make_world(block_count=8)
    submit(world, PROMPT, tokens_max=4)
    decide(world, planned(world), Decision(error="not a number"))
    again = submit(world, PROMPT, tokens_max=4)
    planned(world)
    assert again.tally.cached == 0


def test_check_finds_a_leaked_block() -> None:
    world = make_world()
    sequence = submit(world)
    planned(world)
    sequence.memory.table.blocks.pop()
    with pytest.raises(AssertionError, match="leaked"):
        world.scheduler.check()


def test_check_finds_a_waiting_sequence_with_blocks() -> None:
    world = make_world()
    submit(world).memory.reserve(1)
    with pytest.raises(AssertionError, match="waiting sequence holds"):
        world.scheduler.check()


def test_check_finds_kv_beyond_the_tokens() -> None:
    world = make_world()
    sequence = submit(world)
    planned(world)
    sequence.computed = 9
    with pytest.raises(AssertionError, match="more KV than tokens"):
        world.scheduler.check()


def test_feedback_reaches_the_next_row_and_no_later_one() -> None:
    world = make_world()
    submit(world)
    feedback = Feedback(topk=(TokenTopK(4, (5,), (1,)),), jump_forward=(6,))
    decide(world, planned(world), Decision(tokens=(5,), feedback=feedback))
    round_ = planned(world)
    assert [row.feedback for row in round_.rows] == [feedback]
    decide(world, round_, Decision(tokens=(6,)))
    assert [row.feedback for row in planned(world).rows] == [NOTHING_LEARNED]
