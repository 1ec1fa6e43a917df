"""The classical rules, enumerated: whatever the draft's distribution, the text has the target's."""

import random
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from draftwerk.speculative.sampling.rejection import (
    Distribution,
    block_distribution,
    block_odds,
    draw,
    ratio_distribution,
    ratio_odds,
)

VOCAB = 3
DRAFTED = 3
Rule = Callable[
    [tuple[int, ...], list[Distribution], list[Distribution]],
    Iterator[tuple[float, int, list[float]]],
]


def ratio(
    tokens: tuple[int, ...], drafts: list[Distribution], targets: list[Distribution]
) -> Iterator[tuple[float, int, list[float]]]:
    for accepted, chance in enumerate(ratio_odds(tokens, drafts, targets)):
        yield chance, accepted, ratio_distribution(accepted, drafts, targets)


def block(
    tokens: tuple[int, ...], drafts: list[Distribution], targets: list[Distribution]
) -> Iterator[tuple[float, int, list[float]]]:
    for accepted, chance in enumerate(block_odds(tokens, drafts, targets)):
        yield chance, accepted, block_distribution(accepted, tokens, drafts, targets)


def random_distribution(rng: random.Random, sparse: bool) -> list[float]:
    weights = [0.0 if sparse and rng.random() < 0.3 else rng.random() + 0.01 for _ in range(VOCAB)]
    if not any(weights):
        weights[rng.randrange(VOCAB)] = 1.0
    return [weight / sum(weights) for weight in weights]


def random_model(seed: int, sparse: bool) -> dict[tuple[int, ...], list[float]]:
    """Return a distribution for every context of at most DRAFTED tokens."""
    rng = random.Random(seed)
    return {
        context: random_distribution(rng, sparse)
        for length in range(DRAFTED + 1)
        for context in product(range(VOCAB), repeat=length)
    }


def text_distribution(model: dict[tuple[int, ...], list[float]], text: tuple[int, ...]) -> float:
    chance = 1.0
    for position, token in enumerate(text):
        chance *= model[text[:position]][token]
    return chance


def speculated(
    rule: Rule,
    target: dict[tuple[int, ...], list[float]],
    draft: dict[tuple[int, ...], list[float]],
) -> tuple[dict[tuple[int, ...], float], float]:
    """Return the distribution of whole texts, the target going on after one round, and mean
    acceptance."""
    distribution = dict.fromkeys(product(range(VOCAB), repeat=DRAFTED + 1), 0.0)
    mean = 0.0
    for tokens in product(range(VOCAB), repeat=DRAFTED):
        drawn = text_distribution(draft, tokens)
        if drawn == 0.0:
            continue
        drafts: list[Distribution] = [draft[tokens[:n]] for n in range(DRAFTED)]
        targets: list[Distribution] = [target[tokens[:n]] for n in range(DRAFTED + 1)]
        for chance, accepted, following in rule(tokens, drafts, targets):
            mean += drawn * chance * accepted
            for text in distribution:
                if text[:accepted] == tokens[:accepted]:
                    rest = following[text[accepted]]
                    for position in range(accepted + 1, DRAFTED + 1):
                        rest *= target[text[:position]][text[position]]
                    distribution[text] += drawn * chance * rest
    return distribution, mean


@pytest.mark.parametrize("rule", [ratio, block])
@pytest.mark.parametrize("seed", range(10))
def test_the_text_has_the_target_distribution_exactly(rule: Rule, seed: int) -> None:
    target, draft = random_model(seed, seed % 2 == 1), random_model(seed + 100, seed % 3 == 1)
    distribution, _ = speculated(rule, target, draft)
    for text, chance in distribution.items():
        assert chance == pytest.approx(text_distribution(target, text), abs=1e-12)


@pytest.mark.parametrize("rule", [ratio, block])
def test_a_draft_without_probabilities_is_a_point_mass(rule: Rule) -> None:
    target = random_model(1, False)
    draft = {context: [0.0, 1.0, 0.0] for context in target}
    distribution, _ = speculated(rule, target, draft)
    for text, chance in distribution.items():
        assert chance == pytest.approx(text_distribution(target, text), abs=1e-12)


@pytest.mark.parametrize("rule", [ratio, block])
def test_a_draft_with_the_target_distribution_is_accepted_whole(rule: Rule) -> None:
    target = random_model(2, False)
    assert speculated(rule, target, target)[1] == pytest.approx(DRAFTED, abs=1e-12)


def test_block_verification_never_accepts_less() -> None:
    better = 0
    for seed in range(30):
        target, draft = random_model(seed, False), random_model(seed + 500, False)
        of_ratio, of_block = (
            speculated(ratio, target, draft)[1],
            speculated(block, target, draft)[1],
        )
        assert of_block >= of_ratio - 1e-12
        better += of_block > of_ratio + 1e-6
    assert better > 15


def test_the_enumeration_finds_a_biased_rule() -> None:
    def greedy(
        tokens: tuple[int, ...], drafts: list[Distribution], targets: list[Distribution]
    ) -> Iterator[tuple[float, int, list[float]]]:
        for accepted, chance in enumerate(ratio_odds(tokens, drafts, targets)):
            yield chance, accepted, list(targets[accepted])  # leaves out the residual

    target, draft = random_model(3, False), random_model(103, False)
    distribution, _ = speculated(greedy, target, draft)
    assert (
        max(abs(chance - text_distribution(target, text)) for text, chance in distribution.items())
        > 1e-3
    )


def test_odds_add_up_and_a_uniform_falls_somewhere() -> None:
    target, draft = random_model(4, False), random_model(5, False)
    tokens = (0, 2, 1)
    drafts: list[Distribution] = [draft[tokens[:n]] for n in range(3)]
    targets: list[Distribution] = [target[tokens[:n]] for n in range(4)]
    for odds in (ratio_odds(tokens, drafts, targets), block_odds(tokens, drafts, targets)):
        assert sum(odds) == pytest.approx(1.0, abs=1e-12)
        assert draw(odds, 0.0) == next(n for n, chance in enumerate(odds) if chance > 0)
        assert draw(odds, 1.0) == max(n for n, chance in enumerate(odds) if chance > 0)
