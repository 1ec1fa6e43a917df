"""The store: private to a name space, bounded, and fed with committed text only, once."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from draftwerk.speculative.row_parts.feedback import TokenTopK
from draftwerk.speculative.sources.ngram_index import PAD, SequenceText
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.sequence_noise import GREEDY
from draftwerk.speculative.sources.store import OutputStores, Store, StoreSource
from tests.speculative.sources.trees import proposed_by


def proposed(store: Store, tail: list[int]) -> list[int]:
    source = StoreSource(NUMBERS["store"], SequenceText(tail), store, GREEDY)
    return proposed_by(source, 8).tokens


def test_finished_output_is_proposed_again() -> None:
    store = Store()
    store.learn([1, 2, 3, 4, 5])
    assert proposed(store, [2, 3]) == [4, 5]


def test_no_guess_crosses_from_one_output_into_the_next() -> None:
    store = Store()
    store.learn([1, 2, 3])
    store.learn([7, 8, 9])
    assert proposed(store, [1, 2]) == [3]
    assert proposed(store, [3, 7]) == []


@given(st.lists(st.lists(st.integers(0, 50), max_size=60), max_size=40))
@example([[0, 0], [], [0, 0], [0, 0, 0]])
def test_a_store_is_bounded_and_keeps_the_newest(outputs: list[list[int]]) -> None:
    store = Store(generation_max=100)
    for output in outputs:
        store.learn(output)
        assert store.size <= 2 * 100 + PAD
        for generation in store.generations:
            generation.check()
            assert generation.indexed == len(generation.tokens)
    *earlier, newest = outputs or [[]]
    begins_anew = newest[:2] not in [list(pair) for each in earlier for pair in pairwise(each)]
    if len(newest) >= 3 and begins_anew:  # or else others may have gone on otherwise, or ended
        assert newest[2] in proposed(store, newest[:2])


def test_an_output_longer_than_a_generation_keeps_its_end() -> None:
    store = Store(generation_max=100)
    store.learn(range(1000))
    assert proposed(store, [990, 991])[:2] == [992, 993]
    assert proposed(store, [10, 11]) == []
    assert store.size <= 200 + PAD


def test_name_spaces_are_separate() -> None:
    stores = OutputStores()
    stores.of("a").store.learn([1, 2, 3, 4])
    stores.of("a").successors.learn((TokenTopK(1, (2, 3), (5, 9)),))
    assert proposed(stores.of("b").store, [2, 3]) == []
    assert stores.of("b").successors.of(1) is None
    assert proposed(stores.of("a").store, [2, 3]) == [4]


def test_the_name_space_unused_for_longest_is_dropped() -> None:
    stores = OutputStores(name_spaces_max=2)
    first = stores.of("a")
    stores.of("b")
    assert stores.of("a") is first
    stores.of("c")
    assert stores.of("a") is first
    stores.check()
