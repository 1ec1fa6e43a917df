"""Tokens around a gap, of vocabularies that have them, in part, or not."""

import pytest

from draftwerk.speculative.requests.fim import (
    ENDS,
    FILES,
    FORMS,
    REPOSITORIES,
    SNIPPET,
    FimTokens,
    fim_tokens,
)
from draftwerk.speculative.sources.ngram import NgramSource
from draftwerk.speculative.sources.ngram_index import INDEX_MAX, SequenceText
from draftwerk.speculative.sources.registry import NUMBERS
from tests.speculative.sources.trees import proposed_by


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_found_by_its_names(form: tuple[str, ...]) -> None:
    ids = {name: 100 + index for index, name in enumerate((*form, *ENDS[:3]))}
    found = fim_tokens(ids.get)
    assert found is not None
    assert (found.before, found.after, found.middle) == (100, 101, 102)
    assert found.ends == (103, 104, 105)
    assert found.prompt([7], [8], [9]) == [7, 100, 8, 101, 9, 102]


def test_a_part_of_a_form_is_none() -> None:
    for form in FORMS:
        ids = dict.fromkeys(form[:2], 1)
        assert fim_tokens(ids.get) is None
    assert fim_tokens({}.get) is None


def encode(text: str) -> list[int]:
    return list(text.encode())


def test_other_files_come_first_under_their_names() -> None:
    names = {name: 100 + at for at, name in enumerate((*FORMS[0], REPOSITORIES[0], FILES[0]))}
    found = fim_tokens(names.get)
    assert found is not None
    assert (found.repository, found.file) == (103, 104)
    start = [103, *b"myproject\n", 104, *b"a.py\nx", 104, *b"filename\n"]
    assert found.files([("a.py", "x")], encode) == start
    assert found.files([], encode) == []
    bare = FimTokens(1, 2, 3)
    assert bare.files([("a.py", "x"), ("b.py", "y")], encode) == [
        *encode(f"{SNIPPET}x"),
        *encode(f"{SNIPPET}y"),
    ]


PREFIX = """import math


class Circle:
    def __init__(self, radius: float) -> None:
        self.radius = radius

"""
SUFFIX = """
    def circumference(self) -> float:
        return 2 * math.pi * self.radius


class Square:
    def __init__(self, side: float) -> None:
        self.side = side

    def area(self) -> float:
        return self.side * self.side
"""
GAP = """    def area(self) -> float:
        return math.pi * self.radius * self.radius
"""
"""What belongs between: most of it stands behind the gap in another class."""


def accepted(behind: str) -> float:
    """Return the share of the gap's tokens that drafts had right, with such a text behind it."""
    prompt = FimTokens(256, 257, 258).prompt([], encode(PREFIX), encode(behind))
    text, wanted = SequenceText(prompt), encode(GAP)
    source = NgramSource(NUMBERS["ngram"], text)
    right = at = 0
    while at < len(wanted):
        text.occurrences.index(INDEX_MAX)
        drafted = proposed_by(source, 8).tokens
        count = 0
        while count < len(drafted) and drafted[count] == wanted[at + count]:
            count += 1
        right += count
        step = wanted[at : at + count + 1]
        text.occurrences.append(step)
        at += len(step)
    return right / len(wanted)


def test_drafts_come_from_the_text_behind_the_gap() -> None:
    assert accepted(SUFFIX) > accepted("\n") + 0.2
    assert accepted(SUFFIX) > 0.6
