"""One tree out of many guesses: closed, unique, bounded, and everyone credited."""

import random

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.tree import NODES_MAX
from tests.speculative.sources.trees import empty, grown

seeds = st.integers(0, 2**32)


@given(seeds, st.integers(0, 120), st.integers(1, 6))
def test_a_merged_tree_is_sound_whatever_is_merged(seed: int, count: int, vocab: int) -> None:
    tree = grown(random.Random(seed), count, vocab)
    tree.check()
    chances = tree.chances()
    totals: dict[int, float] = {}
    for parent, chance in zip(tree.parents, chances, strict=True):
        assert 0.0 <= chance <= (chances[parent] if parent >= 0 else 1.0)
        totals[parent] = totals.get(parent, 0.0) + chance
    for parent, total in totals.items():
        assert total <= (chances[parent] if parent >= 0 else 1.0) + 1e-9, "siblings exclude"


@given(seeds, st.integers(0, 60), st.integers(0, 20))
def test_a_draft_of_chosen_nodes_is_a_draft(seed: int, count: int, size: int) -> None:
    tree = grown(random.Random(seed), count, 4)
    chances = tree.chances()
    chosen = sorted(range(len(tree)), key=lambda node: -chances[node])[
        :size
    ]  # as the draft budget chooses
    draft = tree.draft(chosen)
    assert len(draft.tokens) == len(draft.parents) == len(draft.sources) == len(chosen)
    assert all(-1 <= parent < node for node, parent in enumerate(draft.parents))
    assert len({*zip(draft.parents, draft.tokens, strict=True)}) == len(chosen)


def test_the_same_path_from_two_sources_is_one_path_that_credits_both() -> None:
    tree = empty()
    tree.add_chain(-1, [5, 6, 7], kind(NUMBERS["ngram"], 0))
    tree.add_chain(-1, [5, 6, 8], kind(NUMBERS["suffix"], 19))
    assert tree.tokens == [5, 6, 7, 8]
    assert tree.parents == [-1, 0, 1, 1]
    assert tree.credit_nodes == [0, 1, 2, 0, 1, 3]
    assert tree.draft([0, 1, 2, 3]).sources == ("suffix", "suffix", "ngram", "suffix")


def test_what_the_client_predicted_is_called_the_clients() -> None:
    tree = empty()
    tree.add_chain(-1, [5, 6], kind(NUMBERS["prediction"], 0))
    tree.add_chain(-1, [5, 6], kind(NUMBERS["draft"], 0))
    assert tree.draft([0, 1]).sources == ("prediction", "prediction")


def test_a_full_tree_takes_no_more() -> None:
    tree = empty()
    tree.add_chain(-1, range(200), kind(NUMBERS["ngram"], 0))
    assert len(tree) == NODES_MAX
    assert tree.add(-1, 999, kind(NUMBERS["ngram"], 0)) == -1
    assert tree.add(-1, 0, kind(NUMBERS["suffix"], 0)) == 0, "what is there can still be credited"
    tree.check()


def test_a_path_is_followed_as_deep_as_it_goes() -> None:
    tree = empty()
    tree.add_chain(-1, [1, 2, 3], kind(NUMBERS["ngram"], 0))
    tree.add_chain(0, [4], kind(NUMBERS["ngram"], 0))
    assert tree.follow([1, 4, 3]) == [0, 3]
    assert tree.follow([2]) == []
