"""Beam searches in the scheduler: the naive texts and scores, and every block comes home."""

from collections import Counter
from random import Random

import pytest

from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.speculative.options.beams.beam_world import BeamWorld, story
from tests.support.toy import STOP

GREEDY = Sampling(temperature=0.0, stop_token_ids=(STOP,))
RULES = BeamRules(width=4, tokens_max=12, stop_token_ids=(STOP,))


def test_any_company_any_cancel_any_pool_gives_the_naive_texts() -> None:
    counters: Counter[str] = sum((story(seed) for seed in range(80)), Counter())
    for happened in (
        "searches",
        "drawn",
        "cancelled",
        "branches with others",
        "copies",
        "moves",
        "accepted steps",
        "head_candidates",
        "preempted searches",
    ):
        assert counters[happened] > 10, counters


def test_recurrent_states_give_the_same_in_few_slots_and_in_many() -> None:
    stories = (story(seed, state_slots=(9, 12, 40)[seed % 3]) for seed in range(90))
    counters: Counter[str] = sum(stories, Counter())
    happened = ["searches", "drawn", "cancelled", "copies", "accepted steps", "preempted searches"]
    for each in happened:
        assert counters[each] > 5, counters
    assert counters["moves"] == 0


@pytest.mark.parametrize("state_slots", [0, 17])
@pytest.mark.parametrize("draft_max", [0, 8])
def test_a_search_alone_is_the_naive_one(draft_max: int, state_slots: int) -> None:
    limits = RoundLimits(tokens_max=64, draft_max=8)
    world = BeamWorld(Random(1), 40, 4, limits, state_slots)
    for width in (2, 3, 4, 8):
        rules = BeamRules(width=width, tokens_max=12, stop_token_ids=(STOP,))
        world.search([1, 2, 3, 4, 5], GREEDY, rules, width, draft_max)
        world.run()
    accepted = world.scheduler.stats.accepted_tokens
    assert accepted > 0 if draft_max else accepted == 0


def test_a_prompt_goes_on_from_what_a_search_replied() -> None:
    for draft_max, width, choices in ((0, 2, 1), (0, 4, 4), (8, 2, 1), (8, 4, 2)):
        world = BeamWorld(Random(1), 80, 4, RoundLimits(tokens_max=64, draft_max=8), 60)
        assert world.states is not None
        snapshots = world.states.pool.names
        for n in range(6):
            prompt, before = [1 + n, 2, 3, 4, 5], len(snapshots)
            rules = BeamRules(width=width, tokens_max=19 + n, stop_token_ids=(STOP,))
            found = world.search(prompt, GREEDY, rules, choices, draft_max)
            world.run()
            assert len(snapshots) <= before + 1 + choices, "more than one for each text"
            for text in found.got:
                following = world.submit([*prompt, *text, 1, 2], GREEDY, 3)
                world.run()
                read = len(prompt) + len(text) - (following.sequence.tally.cached or 0)
                assert 0 < read <= 4 + draft_max, (text, read)
        assert not world.states.passing


def test_a_search_is_cancelled_at_any_step() -> None:
    for moment in range(16):
        world = BeamWorld(Random(moment), 40, 4, RoundLimits(tokens_max=64, draft_max=8))
        wanted = world.search([1, 2, 3, 4, 5, 6], GREEDY, RULES)
        world.search([1, 2, 3, 4, 5, 7], GREEDY, RULES)
        for turn in range(moment):
            if turn % 2 or not world.plan():
                while world.verdicts:
                    world.commit()
        if not wanted.over:
            world.cancel(wanted)
        world.run()


def test_a_long_prompt_is_held_once() -> None:
    prompt = [1 + n % 7 for n in range(1000)]
    world = BeamWorld(Random(1), 200, 16, RoundLimits(tokens_max=256, draft_max=8))
    world.search(prompt, GREEDY, BeamRules(width=4, tokens_max=12))
    world.run()
    one = -(-1000 // 16)
    tails = 4 * 2  # each member's own partial block, and the one it grows into
    assert world.blocks_peak <= 1.15 * one + tails
    assert world.blocks_peak <= one + tails
    assert world.counters["copies"] <= 3 * 12, "more than one copy for each divergence"
