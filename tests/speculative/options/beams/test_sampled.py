"""Beams at a temperature: the texts that the whole tree's noise puts first, drawn by their
distribution."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from math import log

import pytest

from draftwerk.speculative.options.beams.decisions import BeamRules, Beams
from draftwerk.speculative.options.beams.sampled import new_beams
from tests.support.beams.naive_beams import Distribution, naive_sampled_search

STOP = 0
SAMPLINGS = {(): (0.2, 0.5, 0.3), (1,): (0.6, 0.1, 0.3), (2,): (0.1, 0.45, 0.45)}
"""Over three tokens, by the text before; texts of two tokens are at their end."""


def distribution(text: Sequence[int]) -> list[float]:
    return [log(chance) for chance in SAMPLINGS[tuple(text)]]


def rules_of(seed: int, width: int) -> BeamRules:
    return BeamRules(width=width, tokens_max=2, stop_token_ids=(STOP,), seed=seed, prompt_count=3)


def drawn(distribution: Distribution, rules: BeamRules, narrow: bool = False) -> Beams:
    """Run a search; with `narrow`, on no more candidates than it needs, as a device returns
    them."""
    beams = new_beams(rules)
    while not beams.done:
        candidates = [tuple(enumerate(distribution(each.tokens))) for each in beams.live]
        if narrow:
            candidates = [
                tuple(child.chosen_from[child.tokens[-1]] for _, _, child in best)
                for best in by_parent(beams, candidates, rules.candidates)
            ]
        beams.step(candidates)
        beams.check()
    return beams


def by_parent(beams: Beams, candidates: list, count: int) -> list:
    grown = beams._grown(candidates)
    groups = [[one for one in grown if one[1] == parent] for parent in range(len(candidates))]
    return [sorted(group, key=lambda one: -one[0])[:count] for group in groups]


def whole_texts() -> dict[tuple[int, ...], float]:
    """Return the probability of every text."""
    found: dict[tuple[int, ...], float] = {(STOP,): SAMPLINGS[()][STOP]}
    for first in (1, 2):
        for second in range(3):
            found[first, second] = SAMPLINGS[()][first] * SAMPLINGS[first,][second]
    return found


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_the_beam_holds_the_best_of_all_texts_under_the_noise(width: int) -> None:
    for seed in range(200):
        rules = rules_of(seed, width)
        wanted = naive_sampled_search(distribution, rules)
        found = drawn(distribution, rules, narrow=True)
        assert [each.tokens for each in found.finished] == [text for text, _ in wanted]
        assert [each.score for each in found.finished] == pytest.approx([s for _, s in wanted])


def test_a_beam_as_wide_as_the_language_draws_every_text_once() -> None:
    for seed in range(20):
        found = drawn(distribution, rules_of(seed, 7)).finished
        assert sorted(each.tokens for each in found) == sorted(whole_texts())


def test_pairs_come_in_the_order_of_drawing_without_replacement() -> None:
    draws = 6000
    counts = Counter(
        tuple(each.tokens for each in drawn(distribution, rules_of(seed, 2)).finished)
        for seed in range(draws)
    )
    chances = whole_texts()
    distance = 0.0
    for first, second in permutations(chances, 2):
        wanted = draws * chances[first] * chances[second] / (1.0 - chances[first])
        distance += (counts[first, second] - wanted) ** 2 / wanted
    # Chi-squared with 41 degrees of freedom: 75 is exceeded once in a thousand.
    assert distance < 75.0, distance


def test_a_seed_gives_the_same_again_and_another_something_else() -> None:
    def texts(seed: int) -> list[tuple[int, ...]]:
        return [each.tokens for each in drawn(distribution, rules_of(seed, 3)).finished]

    assert texts(1) == texts(1)
    assert len({tuple(texts(seed)) for seed in range(30)}) > 10


def test_what_is_certain_without_some_offers_is_so_with_them() -> None:
    skipped = 0
    for seed in range(300):
        whole, partial = (new_beams(rules_of(seed, 2)) for _ in range(2))
        while not whole.done:
            candidates = [tuple(enumerate(distribution(each.tokens))) for each in whole.live]
            some = [
                None if number == 1 else chosen_from
                for number, chosen_from in enumerate(candidates)
            ]
            certain = partial.is_certain(some)
            skipped += certain and None in some
            partial.step([each or () for each in some] if certain else candidates)
            whole.step(candidates)
            assert [each.tokens for each in partial.live] == [each.tokens for each in whole.live]
        assert [each.tokens for each in partial.finished] == [
            each.tokens for each in whole.finished
        ]
    assert skipped > 10
