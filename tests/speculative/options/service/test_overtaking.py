"""Who passes a sequence that finds no room, and that it starts no later for it."""

from math import inf
from random import Random

import pytest

from benchmarks.support.virtual_server import VirtualServer, VirtualText
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.speculative.options.service.overtaking import (
    PASSED_MAX,
    EndingText,
    Overtaking,
    rounds_until_free,
)
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.scheduler import RoundLimits, Scheduler

BLOCKS, SIZE = 128, 16


def test_blocks_come_free_as_texts_end() -> None:
    running = [EndingText(9, 10), EndingText(3, 4)]
    assert [rounds_until_free(need, 2, running) for need in (2, 3, 6, 7, 16, 17)] == (
        [0, 3, 3, 9, 9, inf]
    )


Life = tuple[int, int, int, float]
"""Tokens of a prompt, of its answer, its limit, and the time of arrival."""


def served(lives: list[Life], passes: bool) -> tuple[list[VirtualText], list[int]]:
    """Serve texts, one round a second; returns them, and the places of those that were passed, once
    for each time."""
    limits = RoundLimits(rows_max=64, tokens_max=16384)
    scheduler = Scheduler(CachePools(BlockPool(BLOCKS, SIZE)), limits, policy=ServicePolicy)
    passed = list[int]()
    count = Overtaking.count

    def counted(self, sequence, first) -> None:
        passed.append(first.sequence_id - 1)
        count(self, sequence, first)

    texts = [
        VirtualText(prompt, answer, at_s, limit=limit) for prompt, answer, limit, at_s in lives
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Overtaking, "count", counted)
        if not passes:
            patch.setattr(Overtaking, "allows", lambda *_: False)
        VirtualServer(scheduler, texts, lambda _: 1000.0, context_max=BLOCKS * SIZE).run()
    scheduler.check()
    return texts, passed


def random_lives(seed: int) -> list[Life]:
    """Return long and short texts at random times, within the pool; their ends are not known."""
    rng = Random(seed)
    lives = list[Life]()
    at_s = 0.0
    for _ in range(24):
        at_s += rng.choice([0.0, 0.0, 1.0, 20.0])
        prompt, answer = rng.choice(
            [
                (rng.randint(300, 1500), rng.randint(5, 100)),
                (rng.randint(1, 40), rng.randint(1, 30)),
            ]
        )
        limit = answer + rng.choice([0, rng.randint(0, 200)])
        lives.append((prompt, answer, limit, at_s))
    return lives


def check_random_lives(count: int = 10) -> int:
    """Assert that the first one that is passed starts no later; returns how many passed.

    What is passed afterwards waits in another world.
    """
    total = 0
    for seed in range(count):
        lives = random_lives(seed)
        plain, _ = served(lives, passes=False)
        texts, passed = served(lives, passes=True)
        total += len(passed)
        for first in passed[:1]:
            assert texts[first].first_s <= plain[first].first_s, "it starts later than without"
        assert sum(text.first_s for text in texts) <= sum(text.first_s for text in plain)
    return total


def test_the_one_that_waits_starts_no_later_over_random_lives() -> None:
    assert check_random_lives() > 20


def test_small_requests_pass_large_ones_in_a_small_pool() -> None:
    """Five texts of 1,400 tokens in front, six of 5 behind: those need not wait for all."""
    large: list[Life] = [(1400, 100, 100, 0.0)] * 5
    small: list[Life] = [(5, 10, 16, 0.0)] * 6
    texts, passed = served([*large, *small], passes=True)
    assert len(passed) == 6
    assert max(text.first_s for text in texts[5:]) <= 2.0
    plain, _ = served([*large, *small], passes=False)
    assert max(text.first_s for text in plain[5:]) > 400.0
    assert [text.first_s for text in texts[:5]] == [text.first_s for text in plain[:5]]


def test_one_that_waits_is_passed_a_bounded_number_of_times() -> None:
    lives = [(1400, 400, 400, 0.0), (1400, 5, 5, 0.0), *((5, 2, 2, 1.0 + n) for n in range(100))]
    texts, passed = served(lives, passes=True)
    assert passed == [1] * PASSED_MAX
    assert texts[1].first_s == served(lives, passes=False)[0][1].first_s
