"""Each source by itself: what it guesses from what it has seen."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.row_parts.feedback import LOSS_NATS, TokenTopK
from draftwerk.speculative.sampling import Sampling, choose
from draftwerk.speculative.sources import recycle
from draftwerk.speculative.sources.ngram import NgramSource
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.prediction import PredictionSource
from draftwerk.speculative.sources.recycle import RANKS, WIDTHS, RecycleSource, Successors
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.sequence_noise import GREEDY, SequenceNoise, gumbels
from draftwerk.speculative.sources.suffix import SuffixSource
from draftwerk.speculative.sources.tree import DraftTree
from tests.speculative.sources.trees import proposed_by

NGRAM, SUFFIX, RECYCLE, PREDICTED = (
    NUMBERS[name] for name in ("ngram", "suffix", "recycle", "prediction")
)


def known(tokens: list[int]) -> SequenceText:
    text = SequenceText(tokens)
    text.occurrences.index(len(tokens))
    return text


def entry(token: int, *best: int) -> TokenTopK:
    """Return the target's top-k after a token: a half, a quarter and so on."""
    return TokenTopK(token, best, tuple(round(0.7 * (n + 1) / LOSS_NATS) for n in range(len(best))))


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    """Return the tokens of every path from the root to a leaf."""
    whole: list[tuple[int, ...]] = []
    for parent, token in zip(tree.parents, tree.tokens, strict=True):
        whole.append((*(whole[parent] if parent >= 0 else ()), token))
    return {path for node, path in enumerate(whole) if node not in tree.parents}


# --- n-gram and suffix --------------------------------------------------------------------------


def test_ngram_copies_what_followed_the_longest_match() -> None:
    text = known([1, 2, 3, 7, 7, 9, 2, 3, 5, 5, 1, 2, 3])
    assert proposed_by(NgramSource(NGRAM, text), 3).tokens == [7, 7, 9]


def test_ngram_takes_the_newest_of_equal_matches() -> None:
    assert proposed_by(NgramSource(NGRAM, known([2, 3, 7, 2, 3, 8, 2, 3])), 1).tokens == [8]


def test_ngram_unrolls_a_loop() -> None:
    tree = proposed_by(NgramSource(NGRAM, known([1, 2, 1, 2])), 7)
    assert tree.tokens == [1, 2, 1, 2, 1, 2, 1]


def test_suffix_makes_a_tree_of_places_that_disagree() -> None:
    text = known([2, 3, 7, 1, 2, 3, 8, 1, 2, 3, 7, 4, 2, 3])
    tree = proposed_by(SuffixSource(SUFFIX, text, GREEDY), 2)
    assert paths(tree) == {(7, 4), (7, 1), (8, 1)}
    chances = dict(zip(tree.tokens, tree.chances(), strict=True))
    assert chances[7] > chances[8], "two voters against one"


def test_suffix_offers_the_second_longest_matches_too() -> None:
    text = known([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3])
    assert {path[0] for path in paths(proposed_by(SuffixSource(SUFFIX, text, GREEDY), 1))} == {7, 8}


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 20))
def test_ngram_and_suffix_draft_only_what_the_text_has(tokens: list[int], depth_max: int) -> None:
    text = known(tokens)
    pairs = {*pairwise(tokens)}
    for source in (NgramSource(NGRAM, text), SuffixSource(SUFFIX, text, GREEDY)):
        for path in paths(proposed_by(source, depth_max)):
            assert len(path) <= depth_max
            whole = [*tokens[-1:], *path]
            assert {*pairwise(whole)} <= pairs


# --- recycling ----------------------------------------------------------------------------------


def test_recycling_grows_a_tree_of_successors() -> None:
    successors = Successors()
    successors.learn([entry(1, 2, 3), entry(2, 4), entry(3, 5), entry(4, 6)])
    tree = proposed_by(RecycleSource(RECYCLE, known([9, 1]), successors, GREEDY), 3)
    assert paths(tree) == {(2, 4, 6), (3, 5)}


def test_recycling_keeps_the_latest_and_a_bounded_number() -> None:
    successors = Successors()
    successors.learn([entry(1, 2, 3)])
    successors.learn([entry(1, *range(100, 140))])
    tree = proposed_by(RecycleSource(RECYCLE, known([1]), successors, GREEDY), 1)
    assert tree.tokens == list(range(100, 100 + WIDTHS[0]))
    successors.check()


def test_recycling_drafts_first_what_the_noise_favours() -> None:
    """Of equally likely successors the target chooses the one with the most noise."""
    sampling = Sampling(temperature=1.0, seed=5)
    successors = Successors()
    candidates = range(100, 100 + RANKS)
    successors.learn([TokenTopK(1, tuple(candidates), (44,) * RANKS)])
    tree = proposed_by(
        RecycleSource(RECYCLE, known([8, 8, 1]), successors, SequenceNoise(sampling)), 1
    )
    assert tree.tokens[0] == choose([0.0] * 100 + [9.0] * RANKS, 3, sampling)
    noise = dict(zip(candidates, gumbels(5, 0, 3, candidates), strict=True))
    assert tree.tokens == sorted(candidates, key=lambda token: -noise[token])[: WIDTHS[0]]
    assert tree.scores[0] > tree.scores[1]


def test_voters_that_disagree_leave_it_to_the_noise() -> None:
    text = known([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3])
    for seed in range(20):
        sequence_noise = SequenceNoise(Sampling(temperature=1.0, seed=seed))
        tree = proposed_by(SuffixSource(SUFFIX, text, sequence_noise), 1)
        scores = dict(zip(tree.tokens, tree.scores, strict=True))
        noise = dict(zip((7, 8), gumbels(seed, 0, 11, (7, 8)), strict=True))
        assert (scores[7] > scores[8]) == (noise[7] > noise[8])


def test_recycling_drops_what_was_unchanged_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recycle, "TOKENS_MAX", 2)
    successors = Successors()
    successors.learn([entry(1, 5), entry(2, 6), entry(1, 7), entry(3, 8)])
    assert [successors.of(token) for token in (1, 2, 3)] == [entry(1, 7), None, entry(3, 8)]
    successors.check()


def test_recycling_of_a_token_never_seen_guesses_nothing() -> None:
    assert not len(proposed_by(RecycleSource(RECYCLE, known([1]), Successors(), GREEDY), 4))


# --- prediction ---------------------------------------------------------------------------------


def speak(prediction: list[int], written: list[int]) -> DraftTree:
    """Return what is guessed once the `written` tokens have been committed, one token at a time."""
    text = known([500, 501])
    source = PredictionSource(PREDICTED, text, tuple(prediction), 0)
    for token in written:
        text.occurrences.append((token,))
    return proposed_by(source, 4)


PREDICTION = list(range(100, 160))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([], (100, 101, 102, 103)),
        ([100, 101], (102, 103, 104, 105)),
        ([100, 101, 7], (103, 104, 105, 106)),  # 102 was replaced
        ([100, 101, 7], (102, 103, 104, 105)),  # or 7 was inserted before it
        ([100, 101, 104], (105, 106, 107, 108)),  # 102 and 103 were left out
        ([100, 101, 7, 8, 9], (102, 103, 104, 105)),  # three were inserted
        ([100, 101, 7, 8, 9], (105, 106, 107, 108)),  # three were replaced
        ([100, 7, 8, 102, 103], (104, 105, 106, 107)),
        ([7, 8, 130, 131], (132, 133, 134, 135)),
    ],
)
def test_a_prediction_is_found_again_after_a_departure(
    written: list[int], expected: tuple[int, ...]
) -> None:
    assert expected in paths(speak(PREDICTION, written))


def test_a_confirmed_place_is_surer_than_a_guessed_one() -> None:
    sure = speak(PREDICTION, PREDICTION[:20]).chances()[0]
    lost = max(speak(PREDICTION, [*PREDICTION[:20], 7]).chances())
    assert sure > 0.9 > 0.6 > lost


def test_a_reopened_sequence_finds_its_place_in_the_prediction() -> None:
    output = PREDICTION[:10]
    source = PredictionSource(PREDICTED, known([500, *output]), tuple(PREDICTION), len(output))
    assert paths(proposed_by(source, 3)) == {(110, 111, 112)}


def test_a_prediction_that_is_over_or_empty_guesses_nothing() -> None:
    assert not len(speak([1, 2], [1, 2]))
    assert not len(speak([], [1, 2]))


def test_most_of_an_edited_text_is_predicted() -> None:
    rng = random.Random(3)
    before = [rng.randrange(200) for _ in range(600)]
    after: list[int] = []
    for token in before:
        change = rng.random()
        if change < 0.02:
            after += [rng.randrange(200), rng.randrange(200), token]
        elif change < 0.04:
            after.append(rng.randrange(200))
        elif change > 0.02 + 0.02 + 0.02:
            after.append(token)
    text = known([500, 501])
    source = PredictionSource(PREDICTED, text, tuple(before), 0)
    rounds = written = 0
    while written < len(after):
        path = proposed_by(source, 15).follow(after[written:])
        new_token_ids = tuple(after[written : written + len(path) + 1])
        text.occurrences.append(new_token_ids)
        written += len(new_token_ids)
        rounds += 1
    assert len(after) / rounds > 6
