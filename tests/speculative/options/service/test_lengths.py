"""How long texts will be, and who enters because of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from draftwerk.speculative.options.service.lengths import (
    KINDS_MAX,
    RunningText,
    TextLengths,
    expected_peak,
    kind_of,
)
from draftwerk.speculative.rounds import Decision
from draftwerk.speculative.sampling import Grammar, Sampling
from draftwerk.speculative.sequence import Sequence
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.scheduling.test_priority import decided
from tests.speculative.test_scheduler import decide, ids, make_world, planned, submit

ENDING = Sampling(temperature=0.0, stop_token_ids=(2,))


def text(world: World, generated: int, tokens_max: int, sampling: Sampling = ENDING) -> Sequence:
    """Return a sequence that has generated so much."""
    sequence = world.sequence("r", 0, [1], Sampling(temperature=0.0), 3)
    sequence.request = replace(sequence.request, sampling=sampling, tokens_max=tokens_max)
    sequence.tokens += [1] * generated
    return sequence


def lengths_of(ended: list[int]) -> TextLengths:
    lengths = TextLengths()
    for length in ended:
        lengths.learn(length)
    return lengths


def test_what_is_left_follows_the_texts_that_were_longer() -> None:
    world, lengths = make_world(), lengths_of([100, 1000] * 1000)
    assert lengths.left(text(world, 0, 10_000)) == pytest.approx(550, rel=0.03)
    assert lengths.left(text(world, 200, 10_000)) == pytest.approx(800, rel=0.03)


def test_a_kind_has_lengths_of_its_own_once_it_has_ended_some() -> None:
    world, lengths = make_world(), TextLengths()
    short, other = text(world, 0, 10_000), text(world, 0, 10_000)
    other.tokens[0] = 7
    for _ in range(40):
        lengths.learn(1000, kind=3)
    before = lengths.left(short)
    assert before == lengths.left(other)
    for _ in range(40):
        lengths.learn(10, kind_of(short))
    assert lengths.left(short) < before / 4
    assert lengths.left(short) < lengths.left(other) / 2
    for kind in range(KINDS_MAX):
        lengths.learn(1000, kind)
    assert lengths.left(short) == lengths.left(other), "it was forgotten"


def test_a_kind_is_who_asks_how_it_begins_what_rules_and_the_limit() -> None:
    world = make_world()
    one = text(world, 5, 100)
    assert kind_of(one) == kind_of(text(world, 9, 101)), "what was generated does not count"
    ruled = structs.replace(ENDING, grammar=Grammar("regex", "a+"))
    others = [text(world, 5, 10_000), text(world, 5, 100, ruled), text(world, 5, 100)]
    others[2].request = replace(others[2].request, name_space="tenant other")
    begins = text(world, 5, 100)
    begins.tokens[0] = 7
    assert len({kind_of(each) for each in (one, begins, *others)}) == 5


def test_a_text_that_only_its_limit_ends_has_all_of_it_left() -> None:
    world, lengths = make_world(), lengths_of([5] * 100)
    endless = Sampling(temperature=0.0)
    assert lengths.left(text(world, 10, 500, endless)) == 490
    assert lengths.left(text(world, 0, 7)) <= 7, "no text is longer than its limit"


@given(st.lists(st.integers(1, 5000), max_size=60), st.integers(0, 5000), st.integers(1, 6000))
def test_something_is_left_and_no_more_than_the_limit(
    ended: list[int], generated: int, room: int
) -> None:
    lengths = lengths_of(ended)
    lengths.check()
    assert 1 <= lengths.left(text(make_world(), generated, generated + room)) <= room


running = st.builds(
    lambda tokens, left, rows: RunningText(tokens, left, rows * -(-tokens // 4), rows),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 3),
)


@given(st.lists(running, min_size=1, max_size=8), st.integers(0, 20))
def test_the_peak_is_that_of_all_texts_growing_together(
    texts: list[RunningText], others: int
) -> None:
    held = sum(one.blocks for one in texts)

    def use(moment: int) -> int:
        return sum(one.rows * -(-(one.tokens + moment) // 4) for one in texts if one.left >= moment)

    exact = others + max(use(moment) for moment in range(max(one.left for one in texts) + 1))
    # A row's last block is half full on average: half a block a row is the most it can be off by.
    rows = sum(one.rows for one in texts)
    assert abs(expected_peak(others + held, 4, texts) - exact) <= rows / 2 + 1


def two_in_a_small_pool() -> tuple[World, Sequence, Sequence]:
    """Return a world of ten blocks of four tokens, and two texts that need eight blocks each."""
    world = make_world(block_count=10)
    world.service.lengths = lengths_of([24] * 200)
    first, second = (submit(world, [n] * 8, tokens_max=24) for n in (1, 2))
    for one in (first, second):
        one.request = replace(one.request, sampling=ENDING)
    return world, first, second


def test_a_sequence_waits_where_all_would_not_fit_to_their_ends() -> None:
    world, first, _ = two_in_a_small_pool()
    round_ = planned(world)
    assert ids(round_) == [first.sequence_id]
    decided(world, round_)
    assert ids(planned(world)) == [first.sequence_id]
    assert world.scheduler.stats.preemptions == 0


def test_a_sequence_enters_once_the_others_are_near_their_ends() -> None:
    world, first, second = two_in_a_small_pool()
    for _ in range(22):
        round_ = planned(world)
        if second.sequence_id in ids(round_):
            break
        decided(world, round_)
    assert 12 < first.generated < 24
    assert world.scheduler.stats.preemptions == 0


def test_where_nothing_runs_the_first_enters_whatever_is_expected() -> None:
    world = make_world(block_count=2)
    world.service.lengths = lengths_of([4000] * 200)
    alone = submit(world, [1] * 4, tokens_max=12)
    assert ids(planned(world)) == [alone.sequence_id]


def test_lengths_are_learnt_from_texts_that_end() -> None:
    world = make_world()
    lengths = world.service.lengths = TextLengths()
    before = lengths.left(text(world, 0, 10_000))
    for _ in range(60):
        submit(world, [1, 2], tokens_max=2)
        for _ in range(2):
            decide(world, planned(world), Decision(tokens=(9,)))
    assert lengths.left(text(world, 0, 10_000)) < before / 10
