"""A source ranks its candidates with the target's noise, and its own chances sharpened."""

import random
from math import log

import pytest

from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import Sampling, gumbel
from draftwerk.speculative.sources.sequence_noise import GREEDY, SHARPNESS, SequenceNoise


def test_a_score_is_the_sharpened_log_probability_over_the_temperature_plus_the_noise():
    sequence_noise = SequenceNoise(Sampling(temperature=0.5, seed=7, branch=2))
    found = {token: score for score, token in sequence_noise.ranked(11, [3, 400, 5], [10, 0, 64])}
    for token, loss in ((3, 10), (400, 0), (5, 64)):
        sharpened = SHARPNESS * -LOSS_NATS * loss / 0.5
        assert found[token] == pytest.approx(sharpened + gumbel(7, 2, 11, token))


def test_without_noise_the_likeliest_comes_first():
    assert [token for _, token in GREEDY.ranked(5, [8, 9, 10], [30, 0, 20])] == [9, 10, 8]


def test_sharpened_chances_hit_more_than_a_source_s_own_where_it_is_unsure():
    """The target is sure of one of eight tokens; the source mixes that distribution with an even
    one."""
    dice = random.Random(4)
    tokens, tries = list(range(8)), 4000
    sequence_noise = SequenceNoise(Sampling(seed=1))
    hits = blunt = 0
    for position in range(tries):
        right = dice.choice(tokens)
        truth = [0.79 if token == right else 0.03 for token in tokens]
        unsure = [0.5 * chance + 0.5 / 8 for chance in truth]
        noise = sequence_noise.of_tokens(position, tokens)
        said = max(tokens, key=lambda token: log(truth[token]) + noise[token])
        guess = sequence_noise.ranked(
            position, tokens, [round(-log(c) / LOSS_NATS) for c in unsure]
        )[0][1]
        hits += guess == said
        blunt += max(tokens, key=lambda token: log(unsure[token]) + noise[token]) == said
    assert hits > 1.05 * blunt > 0, (hits, blunt)
