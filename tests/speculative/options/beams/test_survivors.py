"""Unexpanded survivors are where the search itself stops for lack of candidates."""

from random import Random

import pytest

from draftwerk.speculative.options.beams.decisions import BeamRules, Beams
from draftwerk.speculative.options.beams.steps import take_steps
from draftwerk.speculative.options.beams.survivors import (
    UnexpandedSurvivor,
    VerifiedBranch,
    unexpanded_survivors,
)
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Draft, VerifiedRow
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.row_parts.decision_options import DecisionOptions
from tests.support.rounds import make_row

WIDTH = 3
VOCAB = 6


def candidates(text: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
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
        beams.step([candidates(each.tokens) for each in beams.live])
    parts: list[VerifiedRow] = []
    rows: list[VerifiedBranch] = []
    for each in beams.live:
        draft = bush(rng, rng.choice([0, 4, 12, 20]))
        chosen_from = tuple(candidates(path) for path in paths(each.tokens, draft))
        row = make_row(
            0, 1, draft_max=20, branch=Branch(group_id=1, candidates=WIDTH, score=each.score)
        )
        parts.append(
            VerifiedRow(row, Decision(options=DecisionOptions(candidates=chosen_from)), draft)
        )
        rows.append(VerifiedBranch(each.score, draft, chosen_from))
    stands, _ = take_steps(beams, parts, bounded=False)
    unknown = [
        UnexpandedSurvivor(*stand.tip, each.tokens[-1])
        for stand, each in zip(stands, beams.live, strict=True)
        if stand.known is None
    ]
    assert unexpanded_survivors(rows, WIDTH) == unknown


def test_a_text_that_ends_goes_nowhere() -> None:
    row = VerifiedBranch(-1.0, NO_DRAFT, (((4, -0.1), (5, -0.2), (6, -0.3)),))
    assert unexpanded_survivors([row], 2, stops=(4,)) == [
        UnexpandedSurvivor(0, -1, 5),
        UnexpandedSurvivor(0, -1, 6),
    ]
    assert unexpanded_survivors([row], 2, stops=(4, 5, 6)) == []
