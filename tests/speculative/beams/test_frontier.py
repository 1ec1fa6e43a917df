"""The frontier is where the search itself stops for want of offers."""

from random import Random

import pytest

from draftwerk.speculative.beams.decisions import BeamRules, Beams
from draftwerk.speculative.beams.frontier import Outpost, Reached, frontier
from draftwerk.speculative.beams.members import Part
from draftwerk.speculative.beams.steps import take_steps
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Branch, Decision, Draft, Row

WIDTH = 3
VOCAB = 6


def offers(text: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
    """Return every next token of a text, the likeliest first: fixed, and different for each."""
    rng = Random(hash(text))
    found = [(token, -5.0 * rng.random()) for token in range(VOCAB)]
    return tuple(sorted(found, key=lambda one: -one[1]))


def bush(rng: Random, size: int) -> Draft:
    tokens: list[int] = []
    parents: list[int] = []
    while len(tokens) < size:
        edge = (rng.randrange(-1, len(tokens)), rng.randrange(VOCAB))
        if edge not in zip(parents, tokens, strict=True):
            parents.append(edge[0])
            tokens.append(edge[1])
    return Draft(tuple(tokens), tuple(parents), ("x",) * size)


def paths(root: tuple[int, ...], draft: Draft) -> list[tuple[int, ...]]:
    found = [root]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append((*found[parent + 1], token))
    return found


@pytest.mark.parametrize("seed", range(200))
def test_it_is_where_the_search_takes_no_further_step(seed: int) -> None:
    rng = Random(seed)
    beams = Beams(BeamRules(width=WIDTH, tokens_max=50))
    for _ in range(rng.randrange(4)):
        beams.step([offers(each.tokens) for each in beams.live])
    parts: list[Part] = []
    rows: list[Reached] = []
    for each in beams.live:
        draft = bush(rng, rng.choice([0, 4, 12, 20]))
        offered = tuple(offers(path) for path in paths(each.tokens, draft))
        row = Row(1, 0, 1, True, 20, (), branch=Branch(1, WIDTH, score=each.score))
        parts.append(Part(row, Decision(offers=offered), draft))
        rows.append(Reached(each.score, draft, offered))
    stands, _ = take_steps(beams, parts, bounded=False)
    unknown = [
        Outpost(*stand.head, each.tokens[-1])
        for stand, each in zip(stands, beams.live, strict=True)
        if stand.known is None
    ]
    assert frontier(rows, WIDTH) == unknown


def test_a_text_that_ends_goes_nowhere() -> None:
    row = Reached(-1.0, NO_DRAFT, (((4, -0.1), (5, -0.2), (6, -0.3)),))
    assert frontier([row], 2, stops=(4,)) == [Outpost(0, -1, 5), Outpost(0, -1, 6)]
    assert frontier([row], 2, stops=(4, 5, 6)) == []
