"""The index of a text against a naive search of it."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.sources.ngram_index import (
    GAP,
    LEVELS,
    PAD,
    POSITIONS_MAX,
    Match,
    Occurrences,
    SequenceText,
)

texts = st.lists(st.integers(0, 2), max_size=80)
cuts = st.lists(st.integers(1, 9), max_size=30)


def naive(tokens: list[int], tail: list[int], end: int) -> list[Match]:
    """Return the newest places up to `end` where the tail's last two tokens stood."""
    found: list[Match] = []
    for position in range(end, PAD, -1):
        fits = [
            length for length in LEVELS if tokens[position - length : position] == tail[-length:]
        ]
        if fits:
            found.append((position, LEVELS.index(max(fits))))
    return found[:POSITIONS_MAX]


@given(texts, cuts)
def test_a_text_finds_where_its_end_stood_before(tokens: list[int], cuts: list[int]) -> None:
    text = SequenceText(tokens[:5])
    rest = tokens[5:]
    for cut in [*cuts, 80]:
        text.occurrences.append(rest[:cut])
        rest = rest[cut:]
        text.occurrences.index(1000)
        known = text.tokens
        assert text.matches() == naive(known, known[-PAD:], len(known) - 1)
    text.occurrences.check()
    assert text.tokens[PAD:] == tokens


@given(texts, texts)
def test_a_text_finds_where_another_ones_end_stood(tokens: list[int], other: list[int]) -> None:
    occurrences = Occurrences()
    occurrences.append(tokens)
    occurrences.index(1000)
    tail = [GAP] * PAD + other
    known = occurrences.tokens
    if len(other) >= 2:
        assert occurrences.matches(tail[-PAD:], False) == naive(known, tail[-PAD:], len(known))


def test_an_index_that_is_behind_finds_nothing_until_it_has_caught_up() -> None:
    text = SequenceText([1, 2, 3] * 20)
    assert not text.matches()
    text.occurrences.index(30)
    assert text.pending == 30
    assert not text.matches()
    text.occurrences.index(30)
    text.occurrences.append([1])
    text.occurrences.index(30)
    assert text.matches()[0] == (PAD + 58, 4)
