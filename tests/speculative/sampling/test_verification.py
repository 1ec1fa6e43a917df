"""Chains verified on the drafted tokens alone, all others being one outcome: the distribution stays
exact."""

import random
from itertools import pairwise, product

import pytest

from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sampling.rejection import block_odds, ratio_odds
from draftwerk.speculative.sampling.verification import UniformUse, Verify, uniform_of, verify_chain

VOCAB = 4
DRAFTED = 2
KEPT = 2
"""Tokens that a draft may be drawn from."""
Model = dict[tuple[int, ...], list[float]]


def random_model(seed: int) -> Model:
    rng = random.Random(seed)
    model: Model = {}
    for length in range(DRAFTED + 1):
        for context in product(range(VOCAB), repeat=length):
            weights = [rng.random() + 0.01 for _ in range(VOCAB)]
            model[context] = [weight / sum(weights) for weight in weights]
    return model


def best(distribution: list[float]) -> dict[int, float]:
    """Return the likeliest tokens as a distribution of their own."""
    kept = sorted(range(VOCAB), key=lambda token: -distribution[token])[:KEPT]
    return {token: distribution[token] / sum(distribution[one] for one in kept) for token in kept}


def next_distribution(
    distribution: list[float], outcomes: list[int], target: list[float]
) -> list[float]:
    """Return a distribution by outcome as one by token; the last outcome is all other tokens."""
    if not distribution:
        return target
    outside = sum(target[token] for token in range(VOCAB) if token not in outcomes)
    spread = [distribution[-1] * chance / outside for chance in target]
    for token, chance in zip(outcomes, distribution, strict=False):
        spread[token] = chance
    return spread


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize("seed", range(6))
def test_the_text_has_the_target_distribution_exactly(rule: Verify, seed: int) -> None:
    target, draft = random_model(seed), random_model(seed + 50)
    distribution = dict.fromkeys(product(range(VOCAB), repeat=DRAFTED + 1), 0.0)
    rejected = 0.0
    for tokens in product(range(VOCAB), repeat=DRAFTED):
        contexts = [tokens[:depth] for depth in range(DRAFTED + 1)]
        distributions = [best(draft[context]) for context in contexts[:-1]]
        if any(token not in found for token, found in zip(tokens, distributions, strict=True)):
            continue
        drawn = 1.0
        for token, found in zip(tokens, distributions, strict=True):
            drawn *= found[token]
        outcomes = [list(found) for found in distributions]
        drafted = [[*found.values(), 0.0] for found in distributions]
        targets = [
            [*(target[context][token] for token in found), 0.0]
            for context, found in zip(contexts, outcomes, strict=False)
        ]
        for chances in targets:
            chances[-1] = 1.0 - sum(chances)
        places = [found.index(token) for found, token in zip(outcomes, tokens, strict=True)]
        # The verdict is the same for all uniforms between two neighbouring sums of odds.
        odds = (ratio_odds if rule == "ratio" else block_odds)(places, drafted, [*targets, [1.0]])
        sums = [0.0]
        for chance in odds:
            sums.append(sums[-1] + chance)
        for low, high in pairwise(sums):
            if high - low < 1e-15:
                continue
            accepted, following = verify_chain(rule, places, drafted, targets, (low + high) / 2)
            rejected += drawn * (high - low) * (accepted < DRAFTED)
            here = target[contexts[accepted]]
            known = outcomes[accepted] if accepted < DRAFTED else []
            for text in distribution:
                if text[:accepted] == tokens[:accepted]:
                    rest = next_distribution(following, known, here)[text[accepted]]
                    for position in range(accepted + 1, DRAFTED + 1):
                        rest *= target[text[:position]][text[position]]
                    distribution[text] += drawn * (high - low) * rest
    assert 0.05 < rejected < 0.95
    for text, chance in distribution.items():
        wanted = 1.0
        for position, token in enumerate(text):
            wanted *= target[text[:position]][token]
        assert chance == pytest.approx(wanted, abs=1e-12)


def test_no_number_serves_twice() -> None:
    seen = {
        uniform_of(Sampling(seed=seed), stop, depth, use)
        for seed in range(3)
        for stop in range(1, 20)
        for depth in range(8)
        for use in UniformUse
    }
    assert len(seen) == 3 * 19 * 8 * len(UniformUse)
    assert all(0.0 < number < 1.0 for number in seen)
