"""The right distribution: `choose`, over many keys, follows `probabilities`.

Each test of agreement has a negative control: the same counts, from a rule with one planted fault,
must fail the same test. Keys are fixed, so a test that passes once passes always.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import exp, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from draftwerk.speculative import sampling as rule
from draftwerk.speculative.sampling import Sampling, choose, edited, gumbel
from tests.support.distributions import probabilities

COUNT = 6000
"""Choices in a sample: enough to see a temperature that is off by a tenth."""

LOGITS = [3.9, -0.8, 1.1, 3.2, -2.0, 0.0, 1.5, 2.5]

SequenceNoise = tuple[int, int, int]
"""Seed, branch, position."""


def chi_square_excess(counts: Mapping[object, int], distribution: Mapping[object, float]) -> float:
    """Return Pearson's statistic in units of its critical value at one in ten thousand.

    Critical values by Wilson and Hilferty (1931). Outcomes that the distribution rules out must not
    occur; rare ones, with fewer than five expected, count as one outcome.
    """
    assert counts.keys() <= distribution.keys(), "something impossible was chosen"
    total = sum(counts.values())
    expected = sorted((total * p, counts.get(outcome, 0)) for outcome, p in distribution.items())
    cells: list[tuple[float, float]] = [(0.0, 0.0)]
    for want, got in expected:
        if cells[-1][0] < 5.0:
            cells[-1] = (cells[-1][0] + want, cells[-1][1] + got)
        else:
            cells.append((want, got))
    if len(cells) == 1:
        return 0.0
    statistic = sum((got - want) ** 2 / want for want, got in cells)
    spread = 2 / (9 * (len(cells) - 1))
    return statistic / ((len(cells) - 1) * (1 - spread + 3.719 * sqrt(spread)) ** 3)


def over_seeds(count: int = COUNT) -> Iterable[SequenceNoise]:
    """Every request draws its first token with its own seed."""
    return ((seed * 0x9E3779B97F4A7C15 % 2**64, 0, 100) for seed in range(count))


def over_positions(count: int = COUNT) -> Iterable[SequenceNoise]:
    """One long text draws each token at its own position."""
    return ((42, 0, position) for position in range(count))


def over_branches(count: int = COUNT) -> Iterable[SequenceNoise]:
    return ((42, branch, 100) for branch in range(count))


walks = pytest.mark.parametrize("walk", [over_seeds, over_positions, over_branches])


def chosen(
    keys: Iterable[SequenceNoise], scores: list[float], sampling: Sampling
) -> Counter[object]:
    return Counter(
        choose(scores, position, replace(sampling, seed=seed, branch=branch))
        for seed, branch, position in keys
    )


distributions = {
    "plain": Sampling(),
    "cold": Sampling(temperature=0.6),
    "hot": Sampling(temperature=1.7),
    "top_k": Sampling(top_k=3),
    "top_p": Sampling(top_p=0.8),
    "min_p": Sampling(min_p=0.2),
    "all cuts": Sampling(temperature=1.4, top_k=5, top_p=0.9, min_p=0.1),
}


# --- one token ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", distributions.values(), ids=distributions)
def test_choices_follow_the_distribution_over_seeds(sampling: Sampling) -> None:
    counts = chosen(over_seeds(), LOGITS, sampling)
    assert chi_square_excess(counts, probabilities(LOGITS, sampling)) < 1


@walks
def test_choices_follow_the_distribution_along_each_part_of_the_key(
    walk: Callable[[], Iterable[SequenceNoise]],
) -> None:
    counts = chosen(walk(), LOGITS, Sampling(temperature=0.8))
    assert chi_square_excess(counts, probabilities(LOGITS, Sampling(temperature=0.8))) < 1


def test_choices_follow_the_distribution_of_edited_logits() -> None:
    sampling = Sampling(
        repetition_penalty=1.4,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        logit_bias=((4, 1.5),),
        tokens_min=5,
        stop_token_ids=(3,),
    )
    scores = edited(LOGITS, [0, 1], [2, 2, 6], sampling)
    counts = chosen(over_seeds(), scores, sampling)
    assert counts[3] == 0
    assert chi_square_excess(counts, probabilities(scores, sampling)) < 1


def test_choices_follow_a_distribution_with_equal_scores() -> None:
    counts = chosen(over_positions(), [0.0] * 6, Sampling(top_k=4))
    assert chi_square_excess(counts, dict.fromkeys(range(4), 0.25)) < 1


@pytest.mark.parametrize("error", [0.9, 1.1])
@pytest.mark.parametrize("name", ["plain", "cold"])
def test_a_temperature_that_is_off_by_a_tenth_is_noticed(name: str, error: float) -> None:
    sampling = distributions[name]
    wrong = replace(sampling, temperature=sampling.temperature * error)
    counts = chosen(over_seeds(), LOGITS, wrong)
    assert chi_square_excess(counts, probabilities(LOGITS, sampling)) > 1


@pytest.mark.parametrize(
    "fault",
    [lambda g: g / 1.2, lambda g: max(g, 0.0), lambda g: exp(-exp(-g))],
    ids=["too small", "cut off", "uniform"],
)
def test_noise_of_another_shape_is_noticed(
    fault: Callable[[float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "gumbel", lambda *key: fault(gumbel(*key)))
    counts = chosen(over_seeds(), LOGITS, Sampling())
    assert chi_square_excess(counts, probabilities(LOGITS, Sampling())) > 1


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
def test_a_cut_that_is_left_out_is_noticed(name: str) -> None:
    counts = chosen(over_seeds(500), LOGITS, Sampling())
    with pytest.raises(AssertionError, match="impossible"):
        chi_square_excess(counts, probabilities(LOGITS, distributions[name]))


def test_a_cut_that_takes_one_token_too_many_is_noticed() -> None:
    counts = chosen(over_seeds(), LOGITS, Sampling(top_k=5))
    assert chi_square_excess(counts, probabilities(LOGITS, Sampling(top_k=6))) > 1


# --- consecutive tokens -------------------------------------------------------------------------


def next_logits(token: int) -> list[float]:
    """Return the logits after a token: a small chain whose steps depend on one another."""
    return [1.1 * ((token * 5 + v * 3) % 4) - 0.6 * (v == token) for v in range(4)]


def text(seed: int, branch: int, start: int, length: int, sampling: Sampling) -> tuple[int, ...]:
    """Return consecutive tokens, the first of them at position `start`."""
    sampling = replace(sampling, seed=seed, branch=branch)
    tokens = [0]
    for position in range(start, start + length):
        tokens.append(choose(next_logits(tokens[-1]), position, sampling))
    return tuple(tokens[1:])


def joint_distribution(length: int, sampling: Sampling) -> dict[object, float]:
    """Return the probability of every text of that length, by enumeration."""
    distribution: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        distribution = {
            (*tokens, token): before * p
            for tokens, before in distribution.items()
            for token, p in probabilities(next_logits([0, *tokens][-1]), sampling).items()
        }
    return dict(distribution)


def texts(length: int, sampling: Sampling, count: int = COUNT) -> Counter[object]:
    return Counter(text(seed, 0, 10, length, sampling) for seed in range(count))


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=0.7, top_p=0.9)], ids=["plain", "cut"]
)
def test_consecutive_tokens_follow_their_joint_distribution(
    length: int, sampling: Sampling
) -> None:
    assert chi_square_excess(texts(length, sampling), joint_distribution(length, sampling)) < 1


def test_pairs_along_one_text_follow_their_joint_distribution() -> None:
    """Every position of one seed serves once, as the first token of a pair or as the second."""
    counts = Counter(text(7, 0, 2 * n, 2, Sampling()) for n in range(COUNT))
    assert chi_square_excess(dict(counts), joint_distribution(2, Sampling())) < 1


def position_in_the_seed(seed: int, branch: int, position: int, token: int) -> float:
    return gumbel(seed + position, branch, 0, token)


def neighbours(
    first: Callable[[int], SequenceNoise], second: Callable[[int], SequenceNoise]
) -> float:
    """Return how far two choices of each n are from being independent."""
    scores = next_logits(1)
    distribution = probabilities(scores, Sampling())
    counts: Counter[object] = Counter()
    for n in range(COUNT // 2):
        pair = tuple(
            choose(scores, position, Sampling(seed=seed, branch=branch))
            for seed, branch, position in (first(n), second(n))
        )
        counts[pair] += 1
    return chi_square_excess(
        counts, {(a, b): p * q for a, p in distribution.items() for b, q in distribution.items()}
    )


def test_branches_of_one_request_are_independent() -> None:
    assert neighbours(lambda n: (n, 0, 10), lambda n: (n, 1, 10)) < 1


def test_neighbouring_seeds_are_independent() -> None:
    assert neighbours(lambda n: (2 * n, 0, 10), lambda n: (2 * n + 1, 0, 10)) < 1


def test_one_seed_at_the_next_position_is_not_the_next_seed_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def later(n: int) -> SequenceNoise:
        return n, 0, 11

    def next_seed(n: int) -> SequenceNoise:
        return n + 1, 0, 10

    assert neighbours(later, next_seed) < 1
    monkeypatch.setattr(rule, "gumbel", position_in_the_seed)
    assert neighbours(later, next_seed) > 1


def test_branches_that_share_noise_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rule,
        "gumbel",
        lambda seed, branch, position, token: gumbel(seed, 0, position, token),
    )
    assert neighbours(lambda n: (n, 0, 10), lambda n: (n, 1, 10)) > 1


# --- any distribution
# ------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=5),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.5, 1.0, 1.6]),
        top_k=st.integers(0, 4),
        top_p=st.sampled_from([1.0, 0.95, 0.7]),
        min_p=st.sampled_from([0.0, 0.1]),
    ),
)
def test_choices_follow_any_distribution(scores: list[float], sampling: Sampling) -> None:
    counts = chosen(over_seeds(1500), scores, sampling)
    assert chi_square_excess(counts, probabilities(scores, sampling)) < 1
