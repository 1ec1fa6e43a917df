"""Loads that nobody wishes for, on virtual time: who waits how long, and that all ends."""

from random import Random

import pytest

from draftwerk.speculative.options.service.prompt_shares import CREDIT_ROUNDS
from tests.speculative.options.service.test_prompt_rows import (
    GAP_MS,
    ROUND,
    alone_s,
    round_s,
    served,
    text,
)

CONTEXT = 16384
PAUSE_S = 0.06


def test_a_prompt_of_the_whole_context_beside_a_hundred_short_ones() -> None:
    long, rng = text(CONTEXT - 2, 2), Random(1)
    chats = [text(10, 4, 1.0 + 20.0 * rng.random()) for _ in range(100)]
    served(long, *chats, blocks=2 * CONTEXT // 16)
    waits = sorted(chat.first_s for chat in chats)
    assert waits[-1] <= 3.0 * alone_s(10) + round_s(CONTEXT)
    others_s = sum(chat.times_s[-1] - chat.arrives_s for chat in chats)
    assert long.first_s <= alone_s(CONTEXT - 2) + others_s


@pytest.mark.parametrize("behind", [1000, 4000, 12000])
def test_no_text_pauses_longer_beside_a_longer_prompt(behind: int) -> None:
    """A chunk that takes longer behind more tokens has fewer of its own."""
    readers = [text(100, 300) for _ in range(16)]
    long = text(behind, 2, 0.5)
    served(*readers, long, blocks=2 * CONTEXT // 16)
    # The mean of rounds of which one in twenty is longer; here all are as they are expected.
    assert max(reader.pause_s for reader in readers) <= PAUSE_S + 1e-3 * GAP_MS
    assert long.first_s > 0.0


def test_a_thousand_short_prompts_a_second_do_not_starve_a_long_one() -> None:
    """They are many times what the device reads: the long one has a quarter of it."""
    long_s = alone_s(500)
    flood = [text(40, 1, 0.001 * number) for number in range(round(1000 * 4.0 * long_s))]
    long = text(500, 2)
    served(long, *flood)
    assert long.first_s <= 4.0 * long_s + (CREDIT_ROUNDS + 1) * round_s(500)
    assert all(len(one.times_s) == 1 for one in flood), "each is served in the end"
    assert sum(one.times_s[0] < long.times_s[0] for one in flood) > 20


@pytest.mark.parametrize("seed", range(4))
def test_clients_that_go_while_they_wait_leave_nothing_behind(seed: int) -> None:
    rng = Random(seed)
    staying = [text(rng.choice([10, 400, 3000]), 8, 2.0 * rng.random()) for _ in range(20)]
    alone = [text(one.prompt, one.answer, one.arrives_s) for one in staying]
    going = [text(rng.choice([10, 3000, 9000]), 50, 2.0 * rng.random()) for _ in range(60)]
    for one in going:
        one.leaves_s = one.arrives_s + rng.choice([0.0, 0.05, 0.5])
    server = served(*staying, *going, blocks=1500)
    served(*alone, blocks=1500)
    assert server.scheduler.pool.used == 0
    assert server.scheduler.idle
    assert all(len(one.times_s) == one.answer for one in staying)
    assert all(len(one.times_s) < one.answer for one in going)
    # The last has gone half a second after it came: who stays is that much later at most, and by
    # what a round takes that was begun before.
    late = max(one.first_s - plain.first_s for one, plain in zip(staying, alone, strict=True))
    assert late <= 2.5 + round_s(9000)


@pytest.mark.parametrize("seed", range(4))
def test_a_pool_of_the_least_size_serves_all(seed: int) -> None:
    """It holds the longest prompt and its answer, and not a block more."""
    rng = Random(seed)
    longest = text(800, 32, 0.1)
    others = [text(rng.choice([5, 200, 700]), rng.choice([1, 30]), rng.random()) for _ in range(30)]
    server = served(longest, *others, blocks=-(-832 // 16) + 1)
    assert server.scheduler.pool.used == 0
    assert all(len(one.times_s) == one.answer for one in (longest, *others))
    # One after the other, each with its tokens in rounds of its own, and read twice.
    alone = sum(2.0 * (1.0 + one.prompt / ROUND + one.answer) * round_s(800) for one in others)
    assert longest.first_s <= alone
