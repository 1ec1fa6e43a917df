"""A beam search's memory: what counts more, and that a guess is a distribution."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.options.beams.memory import (
    CANDIDATES_MAX,
    ORDERS,
    BeamMemory,
    RankedCandidates,
)
from draftwerk.speculative.row_parts.beam_rows import Seen
from draftwerk.speculative.sources.ngram_index import PAD, Occurrences

TOKENS = st.integers(1, 5)
OFFERS = st.lists(st.tuples(TOKENS, st.floats(-9.0, 0.0)), max_size=4, unique_by=lambda one: one[0])


def memory(*prompt: int, seen: tuple[Seen, ...] = ()) -> BeamMemory:
    found = BeamMemory(Occurrences(prompt))
    found.index()
    found.learn(seen)
    return found


def tail(*tokens: int) -> list[int]:
    return [0] * (PAD - len(tokens)) + list(tokens)


def tokens(guess: tuple[RankedCandidates, int]) -> tuple[list[int], int]:
    return [token for token, _ in guess[0]], guess[1]


def test_nothing_is_guessed_of_unseen_tokens() -> None:
    assert memory(1, 2, 3).guess(tail(8, 9)) == ([], 0)


def test_what_was_offered_is_guessed_as_it_was() -> None:
    candidates = ((7, -0.5), (8, -1.5))
    found, heard = memory(seen=(((1, 2), candidates),)).guess(tail(1, 2))
    assert heard == 2
    assert [token for token, _ in found] == [7, 8]
    assert [logprob for _, logprob in found] == pytest.approx([-0.5, -1.5])


def test_the_newest_offers_count() -> None:
    found, _ = memory(seen=(((1, 2), ((7, -0.1),)), ((1, 2), ((8, -0.1),)))).guess(tail(1, 2))
    assert [token for token, _ in found] == [8]


def test_what_was_offered_after_more_of_the_same_tokens_counts_more() -> None:
    seen: tuple[Seen, ...] = (((1, 2, 3), ((7, -0.7),)), ((9, 2, 3), ((8, -0.7),)))
    known = memory(seen=seen)
    assert tokens(known.guess(tail(1, 2, 3))) == ([7, 8], 3)
    assert tokens(known.guess(tail(9, 2, 3))) == ([8], 3)
    assert tokens(known.guess(tail(5, 2, 3))) == ([8], 2), "the newest is all there is"


def test_the_prompt_is_copied_where_it_agrees_best_and_last() -> None:
    known = memory(1, 2, 3, 4, 9, 2, 3, 5, 8, 2, 3, 6)
    assert known.guess(tail(1, 2, 3)) == ([(4, 0.0)], 0)
    assert known.guess(tail(7, 2, 3)) == ([(6, 0.0)], 0)
    assert known.guess(tail(3, 6)) == ([], 0), "nothing follows the prompt's end"


def test_a_hunch_alone_is_the_guess_and_otherwise_one_voice() -> None:
    head_candidates = ((4, -0.1), (5, -3.0))
    assert tokens(memory().guess(tail(1), head_candidates)) == ([4, 5], 0)
    seen: tuple[Seen, ...] = (((1, 2, 3), ((7, -0.1),)),)
    found = dict(memory(seen=seen).guess(tail(1, 2, 3), head_candidates)[0])
    assert found[7] > found[4] > found[5]


@given(
    st.lists(TOKENS, max_size=30),
    st.lists(st.tuples(st.lists(TOKENS, min_size=1, max_size=ORDERS), OFFERS), max_size=8),
    st.lists(TOKENS, min_size=1, max_size=PAD),
    OFFERS,
)
def test_a_guess_is_ranked_and_a_part_of_a_distribution(
    prompt: list[int],
    seen: list[tuple[list[int], list[tuple[int, float]]]],
    text: list[int],
    head_candidates: list[tuple[int, float]],
) -> None:
    known = memory(*prompt, seen=tuple((tuple(end), tuple(candidates)) for end, candidates in seen))
    found, heard = known.guess(tail(*text), head_candidates)
    logprobs = [logprob for _, logprob in found]
    assert 0 <= heard <= ORDERS and len(found) <= CANDIDATES_MAX
    assert len({token for token, _ in found}) == len(found)
    assert logprobs == sorted(logprobs, reverse=True)
    distributions = [head_candidates, *(candidates for _, candidates in seen)]
    heaviest = max(
        sum(exp(logprob) for _, logprob in distribution) for distribution in distributions
    )
    assert sum(map(exp, logprobs)) <= max(1.0, heaviest) + 1e-9
