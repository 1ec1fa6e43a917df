"""The plain policy: priority, then age, in whole rounds; every text is served, none starves."""

from collections import Counter
from random import Random

import pytest

from draftwerk.speculative.requests.slo import Slo
from draftwerk.speculative.running_set import AGING_ROUNDS
from draftwerk.speculative.scheduler import Policy, RoundLimits
from tests.speculative.scheduling.scheduler_world import World, story
from tests.speculative.scheduling.test_priority import decided
from tests.speculative.test_scheduler import ids, planned, submit


def plain_world(**limits: int) -> World:
    shape = RoundLimits(**{"tokens_max": 8, "draft_max": 0, **limits})
    return World(Random(1), block_count=64, block_size=4, limits=shape, policy=Policy)


def test_every_story_ends_well() -> None:
    happened = sum((story(seed, policy=Policy) for seed in range(0, 60, 2)), Counter[str]())
    assert happened["preemptions"] > 0, happened


def test_prompts_are_read_one_after_another() -> None:
    world = plain_world()
    long, short = submit(world, [1] * 20), submit(world, [2] * 3)
    rounds: list[list[int]] = []
    for _ in range(3):
        round_ = planned(world)
        rounds.append(ids(round_))
        decided(world, round_)
    first, second = long.sequence_id, short.sequence_id
    assert rounds == [[first], [first], [first, second]]


@pytest.mark.parametrize("prompt", [[5] * 3, [5] * 30])
def test_a_low_priority_waits_for_so_many_rounds_and_no_longer(prompt: list[int]) -> None:
    world = plain_world(rows_max=1)
    submit(world, [1], tokens_max=1)
    low = submit(world, prompt, tokens_max=1, priority=1)
    for _ in range(2 * AGING_ROUNDS):
        submit(world, [1, 2], tokens_max=1)
        decided(world, planned(world))
        if low.ended:
            break
    assert low.ended, "it starved"
    assert world.scheduler.stats.rounds > AGING_ROUNDS, "it went before more urgent ones"


def test_promises_change_nothing() -> None:
    world = plain_world()
    sequence = submit(world, [1] * 3)
    sequence.times.slo, sequence.times.expires_s = Slo(ttft=0.01, tpot=0.001), 0.0
    assert world.scheduler.reject(1e9) == []
    assert planned(world).rows[0].stop == 3
