"""Words of a key are always the same, and as many as are wanted."""

from draftwerk_tools.loadtest.workloads.words import WORDS, ids_of, text_of


def test_texts_have_their_length_and_belong_to_their_key() -> None:
    words = text_of(50, "a").split()
    assert len(words) == 50 and set(words) <= set(WORDS)
    assert text_of(50, "a") == text_of(50, "a") != text_of(50, "b")
    assert len(ids_of(9, "a")) == 9 and ids_of(9, "a") == ids_of(9, "a")
