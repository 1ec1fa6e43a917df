"""Beam search as pure decisions: the naive search's texts and scores, and prefixes that stay."""

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.speculative.options.beams.decisions import BeamRules, Beams, common_prefix
from tests.support.beams.naive_beams import Distribution, best_candidates, naive_beam_search

VOCAB = 9


def random_distribution(seed: int, sharpness: float) -> Distribution:
    """Return a distribution that depends on the last three tokens."""

    def distribution(text: Sequence[int]) -> list[float]:
        state = seed * 7919 + 13
        for token in (len(text), *text[-3:]):
            state = (state * 31 + token + 7) * 2654435761 % 2**32
        row: list[float] = []
        for _ in range(VOCAB):
            state = (state * 1664525 + 1013904223) % 2**32
            row.append(-sharpness * state / 2**32 - 0.1)
        return row

    return distribution


def search(distribution: Distribution, rules: BeamRules) -> Beams:
    """Run a search to its end, its invariants checked at every step."""
    beams = Beams(rules)
    final_prefix: tuple[int, ...] = ()
    while not beams.done:
        before = beams.live
        parents = beams.step(
            [best_candidates(distribution(each.tokens), rules.candidates) for each in beams.live]
        )
        assert [before[parent].tokens for parent in parents] == [
            each.tokens[:-1] for each in beams.live
        ]
        beams.check()
        assert beams.final_prefix()[: len(final_prefix)] == final_prefix, (
            "a settled token was taken back"
        )
        final_prefix = beams.final_prefix()
    assert not beams.finished or final_prefix == beams.finished[0].tokens
    return beams


rules = st.builds(
    BeamRules,
    width=st.integers(1, 4),
    tokens_max=st.integers(1, 9),
    stop_token_ids=st.sampled_from([(), (0,), (0, 3)]),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]),
    early_stopping=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 8.0]), rules)
def test_the_search_is_the_naive_one(seed: int, sharpness: float, rules: BeamRules) -> None:
    distribution = random_distribution(seed, sharpness)
    found = search(distribution, rules).finished
    wanted = naive_beam_search(distribution, rules)
    if rules.candidates > VOCAB:  # the naive tables then hold places that nothing can fill
        wanted = wanted[: len(found)]
    assert [each.tokens for each in found] == [text for text, _ in wanted]
    assert [each.score for each in found] == pytest.approx([score for _, score in wanted])


def test_equal_scores_go_by_hypothesis_and_then_by_token() -> None:
    beams = Beams(BeamRules(width=2, tokens_max=9))
    beams.step([((4, -1.0), (5, -1.0), (6, -1.0))])
    assert [each.tokens for each in beams.live] == [(4,), (5,)]
    beams.step([((1, -2.0), (0, -2.0)), ((0, -2.0),)])
    assert [each.tokens for each in beams.live] == [(4, 0), (4, 1)]


def test_impossible_tokens_leave_a_narrower_search_and_then_none() -> None:
    beams = Beams(BeamRules(width=2, tokens_max=9))
    beams.step([((4, -1.0), (5, -inf))])
    assert [each.tokens for each in beams.live] == [(4,)]
    beams.step([((4, -inf), (5, -inf))])
    assert beams.done and beams.final_prefix() == ()


def test_only_the_first_candidates_may_finish() -> None:
    beams = Beams(BeamRules(width=2, tokens_max=9, stop_token_ids=(0,)))
    beams.step([((4, -1.0), (5, -1.1), (0, -1.2), (6, -1.3))])
    assert not beams.finished


def test_a_common_prefix_may_be_everything_or_nothing() -> None:
    assert common_prefix([(1, 2, 3), (1, 2, 4), (1, 2)]) == (1, 2)
    assert common_prefix([(1, 2, 3), (1, 2, 4), (1, 3)]) == (1,)
    assert common_prefix([(1, 2)]) == (1, 2)
    assert common_prefix([(1, 2), ()]) == ()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2.0, 8.0]), rules, st.integers(0, 15))
def test_what_is_certain_without_some_offers_is_so_with_them(
    seed: int, sharpness: float, rules: BeamRules, hidden: int
) -> None:
    distribution = random_distribution(seed, sharpness)
    whole, partial = Beams(rules), Beams(rules)
    while not whole.done:
        candidates = [
            best_candidates(distribution(each.tokens), rules.candidates) for each in whole.live
        ]
        some = [
            None if hidden >> n & 1 else chosen_from for n, chosen_from in enumerate(candidates)
        ]
        certain = partial.is_certain(some)
        assert certain or None in some
        parents = whole.step(candidates)
        assert parents == partial.step([each or () for each in some] if certain else candidates)
        assert [(each.tokens, each.score) for each in partial.finished] == [
            (each.tokens, each.score) for each in whole.finished
        ]


def test_a_text_far_behind_need_not_be_looked_at() -> None:
    beams = Beams(BeamRules(width=2, tokens_max=9))
    beams.step([((4, -0.1), (5, -3.0))])
    assert beams.is_certain([((6, -0.5), (7, -1.0)), None])
    assert not beams.is_certain([((6, -0.5), (7, -2.9)), None]), "equal scores decide nothing"
    assert not beams.is_certain([None, ((6, -0.5), (7, -1.0))])
