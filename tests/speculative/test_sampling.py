"""The rule that turns logits into a distribution: what edits them, what cuts them, and in which
order.

That `choose` then follows the distribution is for test_distribution.py.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp, inf, isclose, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftwerk.speculative.sampling import (
    WINDOW_NATS,
    Sampling,
    choose,
    edited,
    gumbel,
    truncated,
)
from tests.support.distributions import probabilities

VOCAB = 8
PLAIN = Sampling()
GREEDY = Sampling(temperature=0.0)

scores_of = st.lists(
    st.one_of(st.integers(-4, 4).map(float), st.floats(-50, 50)), min_size=1, max_size=VOCAB
)
histories = st.lists(st.integers(0, VOCAB - 1), max_size=12)
truncations = st.builds(
    Sampling,
    temperature=st.sampled_from([0.1, 0.5, 1.0, 2.0]),
    top_k=st.integers(0, VOCAB + 1),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)


def kept(scores: Sequence[float], sampling: Sampling) -> list[int]:
    """Return the tokens inside the distribution, best first."""
    return [token for token, _ in truncated(scores, sampling)]


def logs(*weights: float) -> list[float]:
    """Return logits whose softmax is proportional to the weights."""
    return [log(weight) for weight in weights]


# --- history: penalties, bias, minimum ----------------------------------------------------------


def edit(logits: list[float], prompt: list[int], output: list[int], **how: object) -> list[float]:
    return edited(logits, prompt, output, Sampling(**how))  # type: ignore[arg-type]


@given(scores_of, histories, histories)
def test_without_edits_the_logits_stay(
    logits: list[float], prompt: list[int], output: list[int]
) -> None:
    prompt = [token % len(logits) for token in prompt]
    output = [token % len(logits) for token in output]
    before = list(logits)
    assert edited(logits, prompt, output, PLAIN) == before
    assert logits == before, "the caller's logits were changed"


def test_no_stop_token_comes_before_the_minimum() -> None:
    how = {"tokens_min": 2, "stop_token_ids": (1, 3), "logit_bias": ((1, 100.0),)}
    assert edit([0.0] * 4, [1, 3], [], **how) == [0.0, -inf, 0.0, -inf]
    assert edit([0.0] * 4, [1, 3], [0], **how) == [0.0, -inf, 0.0, -inf]
    assert edit([0.0] * 4, [1, 3], [0, 2], **how) == [0.0, 100.0, 0.0, 0.0]


@given(
    histories,
    histories,
    st.sampled_from([0.5, 1.0, 1.3, 2.0]),
    st.sampled_from([-0.5, 0.0, 0.4]),
    st.sampled_from([-1.0, 0.0, 0.2]),
)
def test_only_the_counts_of_the_history_matter(
    prompt: list[int], output: list[int], repetition: float, presence: float, frequency: float
) -> None:
    how = {
        "repetition_penalty": repetition,
        "presence_penalty": presence,
        "frequency_penalty": frequency,
        "logit_bias": ((2, 1.5), (3, -3.0)),
    }
    logits = [0.5 * token - 1.7 for token in range(VOCAB)]
    scores = edit(logits, prompt, output, **how)
    assert edit(logits, sorted(prompt), output[::-1], **how) == scores
    counts, bias = Counter(output), {2: 1.5, 3: -3.0}
    for token, (logit, score) in enumerate(zip(logits, scores, strict=True)):
        if token in {*prompt, *output}:
            logit = logit / repetition if logit > 0 else logit * repetition
        if token in counts:
            logit -= presence + frequency * counts[token]
        assert score == pytest.approx(logit + bias.get(token, 0.0))


@pytest.mark.parametrize(
    "how",
    [
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"logit_bias": ((0, 1.0),)},
        {"tokens_min": 1},
    ],
    ids=str,
)
def test_whatever_changes_logits_is_reported(how: dict[str, object]) -> None:
    assert Sampling(**how).edits_logits  # type: ignore[arg-type]


def test_what_only_truncates_does_not_edit() -> None:
    assert not Sampling(temperature=0.3, top_k=3, top_p=0.5, min_p=0.1, seed=7).edits_logits


# --- temperature and truncation -----------------------------------------------------------------


def test_without_truncation_every_token_is_ranked_best_first() -> None:
    assert truncated([0.0, 2.0, 1.0], PLAIN) == [(1, 2.0), (2, 1.0), (0, 0.0)]


def test_the_temperature_divides_the_scores() -> None:
    assert truncated([1.0, 2.0], Sampling(temperature=0.5)) == [(1, 4.0), (0, 2.0)]


@pytest.mark.parametrize(
    ("top_p", "tokens"), [(0.0, 1), (0.4, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.9, 4)]
)
def test_top_p_keeps_the_fewest_tokens_that_have_the_mass(top_p: float, tokens: int) -> None:
    assert kept(logs(0.5, 0.25, 0.125, 0.125), Sampling(top_p=top_p)) == [*range(tokens)]


def test_min_p_is_measured_against_the_best_token() -> None:
    scores = logs(0.6, 0.3, 0.06, 0.04)
    assert kept(scores, Sampling(min_p=0.09)) == [0, 1, 2]
    assert kept(scores, Sampling(min_p=0.11)) == [0, 1]
    assert kept(scores, Sampling(min_p=0.6)) == [0]
    assert kept([1.0, 1.0, 0.9], Sampling(min_p=1.0)) == [0, 1]


def test_the_window_cuts_what_is_too_unlikely_to_ever_come() -> None:
    edge = 1.0 - WINDOW_NATS
    assert kept([1.0, edge, edge - 0.01], PLAIN) == [0, 1]
    assert kept([1.0, 1.0 - WINDOW_NATS / 2, 0.0], Sampling(temperature=0.4)) == [0, 2]


def test_the_window_costs_less_than_a_hundred_millionth() -> None:
    assert 100_000 * exp(-WINDOW_NATS) < 1e-8


def test_a_token_that_is_ruled_out_is_never_in_the_distribution() -> None:
    assert kept([-inf, 0.0, -inf], PLAIN) == [1]
    assert kept([-inf, 0.0, -inf], Sampling(top_k=2)) == [1]


def test_truncation_sees_the_temperature() -> None:
    scores = logs(0.6, 0.4)
    assert kept(scores, Sampling(top_p=0.6)) == [0]
    assert kept(scores, Sampling(top_p=0.6, temperature=2.0)) == [0, 1]
    assert kept(scores, Sampling(min_p=0.5, temperature=0.5)) == [0]
    assert kept(scores, Sampling(min_p=0.5)) == [0, 1]


def test_top_p_counts_the_mass_that_top_k_left() -> None:
    scores = logs(0.4, 0.3, 0.2, 0.1)
    assert kept(scores, Sampling(top_p=0.55)) == [0, 1]
    assert kept(scores, Sampling(top_k=2, top_p=0.55)) == [0]


@given(scores_of, truncations)
def test_the_distribution_is_a_beginning_of_the_ranking(
    scores: list[float], sampling: Sampling
) -> None:
    tokens = kept(scores, sampling)
    ranking = sorted(
        range(len(scores)), key=lambda token: (-scores[token] / sampling.temperature, token)
    )
    assert tokens == ranking[: len(tokens)]
    assert tokens, "at least one token is left"


@given(scores_of, truncations)
def test_each_rule_cuts_exactly_what_it_should(scores: list[float], sampling: Sampling) -> None:
    """Rebuild the cut rule by rule, by counting what each must keep."""
    size = len(kept(scores, sampling))
    distributions = [
        replace(PLAIN, temperature=sampling.temperature),
        replace(PLAIN, temperature=sampling.temperature, top_k=sampling.top_k),
    ]
    distributions.append(replace(distributions[1], top_p=sampling.top_p))
    inside = [len(kept(scores, distribution)) for distribution in distributions]
    assert inside[1] == min(inside[0], sampling.top_k or VOCAB)
    weights = sorted(probabilities(scores, distributions[1]).values(), reverse=True)
    if sampling.top_p < 1.0:
        assert sum(weights[: inside[2]]) >= sampling.top_p - 1e-9
        assert inside[2] == 1 or sum(weights[: inside[2] - 1]) < sampling.top_p + 1e-9
    likely = sum(weight >= sampling.min_p * weights[0] * (1 - 1e-9) for weight in weights)
    surely = sum(weight >= sampling.min_p * weights[0] * (1 + 1e-9) for weight in weights)
    assert max(1, min(inside[2], surely)) <= size <= min(inside[2], likely)


@given(scores_of, truncations)
def test_probabilities_are_the_softmax_of_what_is_left(
    scores: list[float], sampling: Sampling
) -> None:
    distribution = probabilities(scores, sampling)
    assert [*distribution] == kept(scores, sampling)
    assert isclose(sum(distribution.values()), 1.0)
    best = next(iter(distribution))
    for token, probability in distribution.items():
        ratio = exp((scores[token] - scores[best]) / sampling.temperature)
        assert isclose(probability, distribution[best] * ratio, rel_tol=1e-9)


@given(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=VOCAB), truncations)
def test_the_distribution_does_not_care_for_what_is_added_to_every_logit(
    scores: list[float], sampling: Sampling
) -> None:
    """Shifted by a power of two, so that not a bit is lost."""
    assert kept(scores, sampling) == kept([score + 64.0 for score in scores], sampling)


# --- the choice ---------------------------------------------------------------------------------


@given(scores_of, st.integers(0, 99))
def test_temperature_zero_takes_the_best_and_the_lower_token_of_a_tie(
    scores: list[float], position: int
) -> None:
    assert choose(scores, position, GREEDY) == scores.index(max(scores))
    assert probabilities(scores, GREEDY) == {scores.index(max(scores)): 1.0}


def test_temperature_zero_does_not_look_at_seed_position_or_truncation() -> None:
    others = [Sampling(temperature=0.0, seed=s, branch=s, top_k=2, min_p=0.5) for s in range(9)]
    assert {choose([0.0, 1.0, 1.0], s, other) for s, other in enumerate(others)} == {1}


@given(scores_of, truncations, st.integers(0, 2**64 - 1), st.integers(0, 15), st.integers(0, 10**6))
def test_the_choice_is_the_best_of_score_plus_noise(
    scores: list[float], sampling: Sampling, seed: int, branch: int, position: int
) -> None:
    sampling = replace(sampling, seed=seed, branch=branch)
    noisy = {
        token: score + gumbel(seed, branch, position, token)
        for token, score in truncated(scores, sampling)
    }
    assert choose(scores, position, sampling) == max(noisy, key=noisy.__getitem__)
