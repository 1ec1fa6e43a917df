"""What was promised: who goes first, who is put last, who is refused, and who fails in time."""

import dataclasses
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.costs.context_cost import ContextCost
from draftwerk.speculative.costs.work import NO_LOAD
from draftwerk.speculative.options.service.prompt_shares import UnreadPrompt
from draftwerk.speculative.options.service.slo_times import (
    SLACK_ROUNDS,
    Pace,
    decoding_rows,
    late_texts,
    rows_free_s,
    slack_rounds,
    unread_prompts,
)
from draftwerk.speculative.requests.slo import Slo
from draftwerk.speculative.running_set import AGING_ROUNDS
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence
from tests.speculative.costs.test_step_cost import ROOFLINE
from tests.speculative.options.service.test_lengths import lengths_of
from tests.speculative.scheduling.scheduler_world import World, led
from tests.speculative.scheduling.test_priority import decided, waiting
from tests.speculative.test_scheduler import GREEDY, ids, make_world, planned

STEPS = tuple((tokens, 10.0 + tokens) for tokens in (1, 16, 64))
"""In milliseconds: a token alone takes 11, a round of 64 takes 74."""


def world_of(**limits: Any) -> World:
    world = make_world(**limits)
    world.scheduler.cost.add_measured(STEPS)
    return world


def submit(
    world: World,
    count: int = 8,
    slo: Slo | None = None,
    expires_s: float = inf,
    tokens_max: int = 9,
    **how: Any,
) -> Sequence:
    """Submit a request of so many tokens, which no other begins with."""
    number = len(world.wanteds)
    prompt = [1 + number % 7, *[2 + number % 5] * (count - 1)]
    sequence = world.sequence(f"r{number}", 0, prompt, GREEDY, tokens_max, **how)
    sequence.times.slo = slo or world.limits.slo
    sequence.times.expires_s = expires_s
    world.scheduler.submit(sequence)
    return sequence


# --- the order ------------------------------------------------------------------------------------


def test_the_first_token_that_is_due_first_comes_first() -> None:
    world = world_of()
    unhurried = submit(world)
    slow = submit(world, slo=Slo(ttft=3.0))
    fast = submit(world, slo=Slo(ttft=0.2))
    ends = submit(world, expires_s=1.0)
    assert waiting(world) == [fast, ends, slow, unhurried]


def test_priority_goes_before_promises() -> None:
    world = world_of()
    hurried = submit(world, slo=Slo(ttft=0.1), priority=1)
    unhurried = submit(world)
    assert waiting(world) == [unhurried, hurried]


def test_equal_promises_are_kept_in_the_order_of_arrival() -> None:
    world = world_of()
    for _ in range(3):
        submit(world, slo=Slo(ttft=0.5))
    found = waiting(world)
    assert [one.sequence_id for one in found] == sorted(one.sequence_id for one in found)


def test_who_was_promised_nothing_waits_for_so_many_rounds_of_others_and_no_longer() -> None:
    world = world_of(rows_max=1)
    submit(world, 1, tokens_max=1)
    last = submit(world, 3, tokens_max=1)
    for _ in range(2 * SLACK_ROUNDS):
        submit(world, 2, Slo(ttft=0.001), tokens_max=1)
        decided(world, planned(world))
        if last.ended:
            break
    assert last.ended, "it starved"
    assert world.scheduler.stats.rounds > SLACK_ROUNDS / 2, "it went before those in a hurry"


@given(st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_patience_is_bounded_and_grows_with_the_time_that_is_left(ttft: float, more: float) -> None:
    world = world_of()
    one = world.sequence("r", 0, [1], GREEDY, 1)
    assert slack_rounds(one, 0.0) == SLACK_ROUNDS
    one.times.slo = Slo(ttft=ttft + 0.001)
    first = slack_rounds(one, 0.0)
    one.times.slo = Slo(ttft=ttft + more + 0.001)
    assert 0 <= first <= slack_rounds(one, 0.0) <= SLACK_ROUNDS
    assert slack_rounds(one, 1e4) == 0
    assert SLACK_ROUNDS <= AGING_ROUNDS, "a promise goes before a priority"


# --- what rows can afford -------------------------------------------------------------------------


def test_the_strictest_promise_rules_a_round() -> None:
    world = world_of()
    texts = [
        submit(world, 8, Slo(tpot=tpot)) if tpot else submit(world, 8) for tpot in (0.0, 0.2, 0.05)
    ]
    found = decoding_rows(texts, 0.0)
    assert (found.row_count, found.tpot_s, found.load.tokens) == (3, 0.05, 3)
    assert decoding_rows(texts[:1], 0.0).tpot_s == inf


def test_prompts_are_read_beside_texts_without_long_pauses() -> None:
    for pause_s, count in ((0.03, 19), (inf, 63)):
        world = world_of(pause_s=pause_s, block_count=300)
        submit(world, 4, tokens_max=30, draft_max=0)
        decided(world, planned(world))
        submit(world, 200)
        chunk = planned(world).rows[-1]
        assert chunk.stop - chunk.start == count, "20 tokens take 30 ms"


def test_tokens_ahead_of_their_time_can_be_afforded() -> None:
    world = world_of()
    (one,) = [submit(world, 8, Slo(tpot=0.05))]
    decided(world, planned(world))
    assert (one.times.first_count, one.times.first_s, one.generated) == (1, 0.0, 1)
    for _ in range(4):
        decided(world, planned(world))
    assert one.times.ahead_s(one.generated, 0.12) == pytest.approx(0.08)
    assert decoding_rows([one], 0.12).spare_s == pytest.approx(0.08)
    assert decoding_rows([one], 0.50).spare_s == 0.0


def test_a_round_is_no_longer_than_a_request_of_it_was_promised() -> None:
    world = world_of(tokens_max=64)
    for tpot in (0.06, 0.03):
        submit(world, 4, Slo(tpot=tpot), draft_max=0)
    decided(world, planned(world))
    submit(world, 60)
    chunk = planned(world).rows[-1]
    assert chunk.stop - chunk.start == 18, "20 tokens take 30 ms"


@pytest.mark.parametrize("in_order", [False, True])
def test_a_round_is_priced_by_the_prompt_that_is_read_first(in_order: bool) -> None:
    world = world_of(tokens_max=64, block_count=300, in_order=in_order)
    world.scheduler.cost.context = ContextCost(ROOFLINE)
    submit(world, 900)
    for _ in range(10):
        decided(world, planned(world))
    submit(world, 2, Slo(ttft=0.01, tpot=0.05), draft_max=0)
    decided(world, planned(world))
    submit(world, 80, Slo(ttft=0.01))
    text, chunk = planned(world).rows
    load, cost = NO_LOAD.with_row(text.start, 1, 1), world.scheduler.cost
    assert chunk.start == 0
    assert chunk.stop == cost.chunk_within(load, 0, 63, 50.0)
    assert chunk.stop > cost.chunk_within(load, 640, 63, 50.0)


# --- deadlines ------------------------------------------------------------------------------------


def test_a_request_without_a_token_ends_at_its_deadline() -> None:
    world = world_of(rows_max=1)
    runs = submit(world)
    decided(world, planned(world))
    waits = submit(world, expires_s=1.0)
    assert world.scheduler.policy.wakes_s() == 1.0
    assert world.scheduler.reject(0.99) == []
    (gone,) = world.scheduler.reject(1.0)
    assert (gone.sequence, gone.retry_after_s, waits.ended) == (waits, 0.0, True)
    assert gone.finish_reason == "deadline_exceeded"
    assert not runs.ended
    assert world.scheduler.policy.wakes_s() == inf
    assert world.scheduler.reject(2.0) == []


def test_a_prompt_that_is_being_read_ends_with_its_verdict() -> None:
    world = world_of(tokens_max=4)
    slow = submit(world, 12, expires_s=1.0)
    round_ = planned(world)
    (gone,) = world.scheduler.reject(1.5)
    assert gone.sequence is slow and not slow.ended
    assert world.scheduler.policy.wakes_s() == inf, "it is told of once"
    decided(world, round_)
    assert slow.ended and world.scheduler.idle


def test_a_text_that_has_begun_is_finished_whatever_the_time() -> None:
    world = world_of()
    begun = submit(world, expires_s=1.0)
    decided(world, planned(world))
    assert world.scheduler.policy.wakes_s() == inf
    assert world.scheduler.reject(9.0) == []
    world.scheduler.running_set.preempt(begun)
    assert world.scheduler.reject(9.0) == []


def test_a_choice_whose_sibling_has_begun_is_finished_too() -> None:
    world = world_of(rows_max=1)
    first, second = led(world.sequence("pair", n, [1] * 6, GREEDY, 3) for n in (0, 1))
    for one in (first, second):
        one.times.expires_s = 1.0
        world.scheduler.submit(one)
    decided(world, planned(world))
    assert first.generated and not second.generated
    assert world.scheduler.reject(9.0) == []


def test_all_choices_of_a_request_end_with_one_last_word() -> None:
    world = world_of()
    for one in led(world.sequence("pair", n, [1] * 6, GREEDY, 3) for n in (0, 1)):
        one.times.expires_s = 1.0
        world.scheduler.submit(one)
    assert len(world.scheduler.reject(1.0)) == 1
    assert world.scheduler.idle


# --- promises that cannot be kept -----------------------------------------------------------------


def pace_of(token_s: float, ahead_s: float = 0.0) -> Pace:
    """Return a pace at which each token takes as long as another; alone it takes half of that."""
    return Pace(
        lambda _, count: token_s * count, lambda _, count: token_s * count / 2, ahead_s=ahead_s
    )


PACE = pace_of(0.01, ahead_s=0.1)


def test_a_request_is_late_if_what_is_before_it_takes_too_long() -> None:
    world = world_of()
    (one,) = [world.sequence("r", 0, [1] * 20, GREEDY, 4)]
    for ttft, late_s in ((0.31, None), (0.29, 0.01)):
        one.times.slo = Slo(ttft=ttft)
        found = late_texts([one], 0.0, PACE, None)
        assert [each.late_s for each in found] == ([] if late_s is None else [pytest.approx(0.01)])
    one.times.slo = Slo(ttft=0.09)
    assert [each.is_out_of_reach for each in late_texts([one], 0.0, PACE, None)] == [True]


def test_who_is_late_delays_nobody() -> None:
    world = world_of()
    big, small = (world.sequence("r", 0, [n] * (100 // n), GREEDY, 4) for n in (1, 5))
    big.times.slo, small.times.slo = Slo(ttft=0.9), Slo(ttft=0.4)
    assert [each.sequence for each in late_texts([big, small], 0.0, PACE, None)] == [big]


def test_a_request_waits_for_a_row() -> None:
    world = world_of(rows_max=2)
    lengths = lengths_of([8] * 300)
    running = [world.sequence("r", 0, [1], GREEDY, 50) for _ in range(2)]
    for one in running:
        ends = Sampling(temperature=0.0, stop_token_ids=(3,))
        one.request = dataclasses.replace(one.request, sampling=ends)
    rows_s = rows_free_s(running, 3, 0.1, lengths)
    assert sorted(rows_s) == [0.0, pytest.approx(0.8, rel=0.5), pytest.approx(0.8, rel=0.5)]
    waits = [world.sequence("r", 0, [2] * 5, GREEDY, 8) for _ in range(3)]
    for one in waits:
        one.times.slo = Slo(ttft=0.5)
    pace = pace_of(0.01)._replace(rows_s=rows_s, round_s=0.1)
    assert [each.sequence for each in late_texts(waits, 0.0, pace, lengths)] == waits[1:]


def late_world(policy: str) -> tuple[World, list[Sequence]]:
    """Return a world in which the second of three requests cannot be in time."""
    world = world_of(tokens_max=16, slo_policy=policy)
    soon = Slo(ttft=0.1)
    return world, [submit(world, 40, Slo(ttft=0.09)), submit(world, 40, soon), submit(world)]


def test_by_policy_a_late_request_is_served_in_its_turn() -> None:
    world, requests = late_world("serve")
    assert world.scheduler.reject(0.0) == []
    assert waiting(world) == requests


def test_a_late_request_is_refused_with_the_time_to_come_back() -> None:
    world, (first, second, third) = late_world("refuse")
    (gone,) = world.scheduler.reject(0.0)
    assert (gone.sequence, gone.finish_reason) == (second, "slo_unmet")
    assert gone.retry_after_s == pytest.approx(2 * (0.039 + 40 / 16 * 0.011) - 0.1), "11 ms a round"
    assert waiting(world) == [first, third]


def test_a_late_request_is_put_behind_those_of_its_priority_once() -> None:
    world, (first, second, third) = late_world("last")
    low = submit(world, priority=2)
    assert world.scheduler.reject(0.0) == []
    assert waiting(world) == [first, third, second, low]
    rank = second.queue_key
    assert world.scheduler.reject(5.0) == []
    assert second.queue_key == rank
    world.scheduler.check()


def test_a_prompt_that_is_read_is_put_behind_those_in_danger_and_goes_on_where_it_was() -> None:
    world = world_of(tokens_max=16, slo_policy="last")
    long = submit(world, 64, Slo(ttft=0.12))
    decided(world, planned(world))
    short = [submit(world, 12, Slo(ttft=0.06)) for _ in range(2)]
    assert world.scheduler.reject(0.0) == []
    rows = planned(world).rows
    assert [row.sequence_id for row in rows] == [one.sequence_id for one in short]
    assert long.times.demoted and (long.computed, long.planned) == (16, 16)
    world.scheduler.check()


def test_a_prompt_that_was_put_behind_others_delays_none() -> None:
    world = world_of(tokens_max=16, slo_policy="last")
    long = submit(world, 64, Slo(ttft=0.05))
    world.scheduler.reject(0.0)
    decided(world, planned(world))
    assert long.times.demoted and long.planned == 16
    short = submit(world, 12, Slo(ttft=0.06))
    world.scheduler.reject(0.0)
    assert not short.times.demoted


def test_a_promise_that_an_idle_server_could_not_keep_is_no_reason_to_refuse() -> None:
    world = world_of(tokens_max=16, slo_policy="refuse")
    long = submit(world, 40, Slo(ttft=0.01))
    other = submit(world)
    assert world.scheduler.reject(0.0) == []
    assert waiting(world) == [other, long]


def test_a_request_that_has_begun_is_not_refused() -> None:
    world = world_of(slo_policy="refuse")
    begun = submit(world, 8, Slo(ttft=0.2))
    decided(world, planned(world))
    world.scheduler.running_set.preempt(begun)
    assert world.scheduler.reject(5.0) == []
    assert ids(planned(world)) == [begun.sequence_id]


def test_what_is_cached_need_not_be_read() -> None:
    world = world_of(tokens_max=64, slo_policy="refuse")
    first = submit(world, 40, tokens_max=1)
    decided(world, planned(world))
    assert first.ended
    again = world.sequence("again", 0, [*first.tokens[:40], 9], GREEDY, 4)
    again.times.slo = Slo(ttft=0.02)
    assert late_texts([again], 0.0, pace_of(0.002), None) == []
    other = world.sequence("other", 0, [6] * 41, GREEDY, 4)
    other.times.slo = Slo(ttft=0.02)
    assert late_texts([other], 0.0, pace_of(0.002), None)


def test_unread_prompts_are_those_without_a_token() -> None:
    world = world_of()
    begun, fresh = submit(world), submit(world, slo=Slo(ttft=2.0))
    begun.tokens.append(3)
    assert unread_prompts([begun, fresh]) == [UnreadPrompt(2.0, 8)]
