"""The noise: Philox as published, uniform inside (0, 1), Gumbel by its moments, independent."""

from itertools import product
from math import exp, isfinite, pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative import sampling as noise
from draftwerk.speculative.sampling import gumbel, philox, uniform
from draftwerk.speculative.sources.sequence_noise import gumbels

seeds = st.integers(0, 2**64 - 1)
words = st.integers(0, 2**32 - 1)


# The known answers that the Random123 library publishes for philox4x32-10.
@pytest.mark.parametrize(
    ("counter", "seed", "answer"),
    [
        (
            (0, 0, 0, 0),
            0,
            (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ),
        (
            (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
            0xFFFFFFFF_FFFFFFFF,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0_A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
def test_philox_gives_the_published_answers(
    counter: tuple[int, int, int, int], seed: int, answer: tuple[int, int, int, int]
) -> None:
    assert philox(counter, seed) == answer


def test_a_token_has_its_word_of_its_counter() -> None:
    """Token 4k + j reads word j of counter (k, position, branch, 0), on a device as here."""
    for token in range(12):
        word = philox((token // 4, 77, 3, 0), 123456789)[token % 4]
        assert uniform(123456789, 3, 77, token) == (word + 0.5) / 2**32


@given(seeds, words, words, words)
def test_noise_is_finite_and_uniform_noise_is_strictly_inside(
    seed: int, branch: int, position: int, token: int
) -> None:
    assert 0.0 < uniform(seed, branch, position, token) < 1.0
    assert -4.0 < gumbel(seed, branch, position, token) < 24.0


@pytest.mark.parametrize("word", [0, 2**32 - 1])
def test_the_outermost_words_are_inside_too(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "philox", lambda counter, seed: (word,) * 4)
    assert 0.0 < uniform(1, 2, 3, 4) < 1.0
    assert isfinite(gumbel(1, 2, 3, 4))


@given(seeds, words, words, words)
def test_the_same_key_gives_the_same_number(
    seed: int, branch: int, position: int, token: int
) -> None:
    assert gumbel(seed, branch, position, token) == gumbel(seed, branch, position, token)


def test_every_part_of_the_key_counts_and_no_two_parts_are_mixed_up() -> None:
    """All keys of a small box have different numbers."""
    box = list(product((0, 1, 2, 2**32, 2**63), range(3), range(12), range(12)))
    assert len({uniform(*key) for key in box}) == len(box)


def test_both_halves_of_a_seed_count() -> None:
    numbers = {uniform(1 << bit, 0, 0, 0) for bit in range(64)}
    assert len(numbers) == 64


def test_flipping_one_bit_of_the_key_flips_half_of_the_answer() -> None:
    flips = [
        (a ^ b).bit_count()
        for bit in range(64)
        for a, b in zip(philox((5, 6, 7, 0), 99), philox((5, 6, 7, 0), 99 ^ 1 << bit), strict=True)
    ]
    assert abs(sum(flips) / len(flips) - 16) < 0.8  # 4.5 deviations of the mean of 256 words


COUNT = 4000
"""Numbers in a sample; bounds below are five standard deviations of what they bound."""

walks = {
    "tokens": lambda n: (7, 0, 5, n),
    "positions": lambda n: (7, 0, n, 5),
    "branches": lambda n: (7, n, 5, 0),
    "seeds": lambda n: (n, 0, 5, 0),
    "high seeds": lambda n: (n << 32, 0, 5, 0),
}


@pytest.mark.parametrize("walk", walks.values(), ids=walks)
def test_uniform_noise_fills_its_bins_evenly(walk) -> None:
    bins = [0] * 16
    for n in range(COUNT):
        bins[int(16 * uniform(*walk(n)))] += 1
    mean = COUNT / 16
    assert sum((count - mean) ** 2 / mean for count in bins) < 15 + 5 * sqrt(30)


@pytest.mark.parametrize("walk", walks.values(), ids=walks)
def test_gumbel_noise_has_the_mean_and_the_variance_of_the_distribution(walk) -> None:
    sample = [gumbel(*walk(n)) for n in range(COUNT)]
    mean = sum(sample) / COUNT
    variance = sum((x - mean) ** 2 for x in sample) / COUNT
    assert abs(mean - 0.577216) < 5 * sqrt(pi**2 / 6 / COUNT)
    assert abs(variance - pi**2 / 6) < 5 * pi**2 / 6 * sqrt(4.4 / COUNT)  # kurtosis 5.4
    below_zero = sum(x < 0 for x in sample) / COUNT
    assert abs(below_zero - exp(-1)) < 5 * sqrt(exp(-1) * (1 - exp(-1)) / COUNT)


@pytest.mark.parametrize("walk", walks.values(), ids=walks)
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_neighbours_are_independent(walk, lag: int) -> None:
    sample = [uniform(*walk(n)) - 0.5 for n in range(COUNT + lag)]
    correlation = sum(a * b for a, b in zip(sample, sample[lag:], strict=False)) * 12 / COUNT
    assert abs(correlation) < 5 / sqrt(COUNT)


def test_two_walks_are_independent() -> None:
    samples = [[uniform(*walk(n + 10)) - 0.5 for n in range(COUNT)] for walk in walks.values()]
    for i, one in enumerate(samples):
        for other in samples[:i]:
            correlation = sum(a * b for a, b in zip(one, other, strict=True)) * 12 / COUNT
            assert abs(correlation) < 5 / sqrt(COUNT)


@given(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 9),
    st.integers(0, 9000),
    st.lists(st.integers(0, 200_000), max_size=9),
)
def test_many_tokens_at_once_have_each_its_noise(
    seed: int, branch: int, position: int, tokens: list[int]
) -> None:
    expected = [gumbel(seed, branch, position, token) for token in tokens]
    assert gumbels(seed, branch, position, tokens) == expected
