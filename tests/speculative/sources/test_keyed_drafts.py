"""Keyed verification: whatever is drafted, chain or tree, the text and so its distribution stay the
same."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from math import exp, log

import pytest

from draftwerk.speculative.rounds import Draft
from draftwerk.speculative.sampling import Sampling, choose
from tests.speculative.sources.trees import grown

VOCAB = 3
LENGTH = 4
STEPS = 6
"""The noise of the enumeration is a die with so many sides; every distribution is in sixths."""

Target = Callable[[tuple[int, ...]], int]
"""The seeded target: from a context to its one next token."""


def distribution_after(context: tuple[int, ...]) -> list[int]:
    """Return how many of the die's sides each token has after a context."""
    return [[1, 2, 3], [4, 1, 1], [0, 3, 3]][(sum(context) + len(context)) % 3]


def rolled(dice: Sequence[int]) -> Target:
    """Return the target whose noise at each position is the die's side."""

    def say(context: tuple[int, ...]) -> int:
        side = dice[len(context)]
        for token, sides in enumerate(distribution_after(context)):
            side -= sides
            if side < 0:
                return token
        raise AssertionError

    return say


def verified(target: Target, context: tuple[int, ...], draft: Draft) -> tuple[int, ...]:
    """Return what one round commits: the path that the target agrees with, and its next token."""
    tokens: list[int] = []
    node = -1
    while True:
        token = target((*context, *tokens))
        tokens.append(token)
        edges = zip(draft.parents, draft.tokens, strict=True)
        node = next((n for n, edge in enumerate(edges) if edge == (node, token)), -1)
        if node < 0:
            return tuple(tokens)


def text(target: Target, drafts: Callable[[tuple[int, ...]], Draft]) -> tuple[tuple[int, ...], int]:
    """Return the first LENGTH tokens, and how many rounds they took."""
    context: tuple[int, ...] = ()
    rounds = 0
    while len(context) < LENGTH:
        context += verified(target, context, drafts(context))
        rounds += 1
    return context[:LENGTH], rounds


def chains(context: tuple[int, ...]) -> Draft:
    rng = random.Random(repr(context))
    return Draft(tuple(rng.randrange(VOCAB) for _ in range(3)), (-1, 0, 1), ("ngram",) * 3)


def trees(context: tuple[int, ...]) -> Draft:
    tree = grown(random.Random(repr(context)), 7, VOCAB)
    return tree.draft(list(range(len(tree))))


def nothing(context: tuple[int, ...]) -> Draft:
    return Draft()


@pytest.mark.parametrize("drafts", [nothing, chains, trees])
def test_enumerated_noise_gives_the_target_distribution_exactly(
    drafts: Callable[[tuple[int, ...]], Draft],
) -> None:
    distribution: Counter[tuple[int, ...]] = Counter()
    rounds = 0
    for dice in product(range(STEPS), repeat=LENGTH):
        # Positions beyond the text may be requested too; their tokens are not used.
        said, took = text(rolled((*dice, *[0] * 8)), drafts)
        distribution[said] += 1
        rounds += took
    assert (rounds == LENGTH * STEPS**LENGTH) == (drafts is nothing), "drafts must be accepted"
    for said in product(range(VOCAB), repeat=LENGTH):
        chance = 1.0
        for position, token in enumerate(said):
            chance *= distribution_after(said[:position])[token] / STEPS
        assert distribution[said] / STEPS**LENGTH == pytest.approx(chance, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_gives_one_text_whatever_is_drafted(temperature: float) -> None:
    saved = 0
    for seed in range(200):
        sampling = Sampling(temperature=temperature, seed=seed)

        def target(context: tuple[int, ...], sampling: Sampling = sampling) -> int:
            # The seed is in the scores too: without noise it would be one text 200 times.
            position = sum(context) * 5 + len(context) + sampling.seed * (len(context) + 1)
            scores = [0.7 * ((position + v * 3) % 4) for v in range(VOCAB)]
            return choose(scores, len(context), sampling)

        plain, rounds = text(target, nothing)
        for drafts in (chains, trees):
            said, took = text(target, drafts)
            assert said == plain
            saved += rounds - took
    assert saved > 100


def test_a_draft_is_accepted_as_often_as_shared_noise_allows() -> None:
    """Between (1 - d) / (1 + d) and 1 - d, the best of any rule, at total variation distance d."""
    target, draft = [log(p) for p in (0.5, 0.3, 0.2)], [log(p) for p in (0.3, 0.3, 0.4)]
    distance, count = 0.2, 4000
    agreed = sum(
        choose(target, 7, sampling) == choose(draft, 7, sampling)
        for sampling in (Sampling(seed=seed) for seed in range(count))
    )
    ratios = (
        sum(exp(max(a - x, b - y)) for a, b in zip(target, draft, strict=True))
        for x, y in zip(target, draft, strict=True)
    )
    expected = sum(1 / ratio for ratio in ratios)
    assert (1 - distance) / (1 + distance) < expected <= 1 - distance
    assert agreed / count == pytest.approx(expected, abs=0.03)
