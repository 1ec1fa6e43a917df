"""The trees of a search as one draft, whose accepted path is the best one."""

from types import SimpleNamespace
from typing import Any

from draftwerk.speculative.options.beams.verified_trees import as_one_row, path_origins, seen
from draftwerk.speculative.rounds import Decision, Draft, VerifiedRow
from draftwerk.speculative.row_parts.decision_options import DecisionOptions

FIRST = Draft((1, 2), (-1, 0), ("ngram", "head"))
SECOND = Draft((3, 4, 5), (-1, 0, 0), ("ngram", "ngram", "head"))
CANDIDATES = ((9, -0.1), (8, -0.2))


def parts() -> list[VerifiedRow]:
    row: Any = None
    return [
        VerifiedRow(
            row,
            Decision(options=DecisionOptions(candidates=(CANDIDATES,) * (len(draft.tokens) + 1))),
            draft,
        )
        for draft in (FIRST, SECOND)
    ]


def test_one_row_has_all_nodes_and_the_path_above_the_tip() -> None:
    found = as_one_row(parts(), (1, 2))
    assert found.draft.tokens == (1, 2, 3, 4, 5)
    assert found.decision.path == (2, 4)
    assert as_one_row(parts(), (0, -1)).decision.path == ()


def test_origins_are_the_sources_along_the_path_and_the_target() -> None:
    assert path_origins(parts(), (1, 2)) == ("ngram", "head", "bonus")
    assert path_origins(parts(), (1, 0)) == ("ngram", "corrected")


def test_the_best_are_told_behind_each_token() -> None:
    members: list[Any] = [SimpleNamespace(tokens=[6, 7])] * 2
    told = [*seen(members, parts(), 1)]
    assert len(told) == 3 + 4
    assert all(candidates == CANDIDATES[:1] for _, candidates in told)
    assert told[0][0][-1] == 7 and told[2][0][-2:] == (1, 2)
