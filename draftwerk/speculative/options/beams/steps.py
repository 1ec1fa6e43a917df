"""How many exact steps of a beam search the verified draft trees cover."""

from typing import NamedTuple

from draftwerk.speculative.options.beams.decisions import Beams, Candidate
from draftwerk.speculative.rounds import Decision, VerifiedRow
from draftwerk.speculative.row_parts.plain import with_options

TreePosition = tuple[int, int]
"""A row of the search, and a node of its draft; -1 is its last known token."""


class BeamPosition(NamedTuple):
    """Where one survivor ends in the draft trees."""

    tip: TreePosition
    """The node after which its last token was a candidate."""
    position: TreePosition | None
    """Where its last token is, if that was a node."""
    known: tuple[Candidate, ...] | None
    """The candidates after it in that case."""


def take_steps(
    beams: Beams, parts: list[VerifiedRow], bounded: bool
) -> tuple[list[BeamPosition], TreePosition]:
    """Take as many steps as the draft trees decide; return the survivors' positions, the best's
    tip.

    With `bounded` a text never becomes likelier by growing, so some candidates need not be known.
    """
    children = [part.draft.children() for part in parts]
    positions: list[TreePosition | None] = [(number, -1) for number in range(len(parts))]
    candidates = [_candidates_at(parts, position) for position in positions]
    tips: list[TreePosition] = []
    stood = positions
    while _decides(beams, candidates, bounded):
        stood = positions
        parents = beams.step([chosen_from or () for chosen_from in candidates])
        tips = [position for parent in parents if (position := stood[parent]) is not None]
        assert len(tips) == len(parents), "a text continues from no survivor"
        if beams.done:
            break
        positions = [
            _child(children, position, each.tokens[-1])
            for position, each in zip(tips, beams.live, strict=True)
        ]
        candidates = [_candidates_at(parts, position) for position in positions]
    best = tips[0] if tips else stood[0]
    assert best is not None, "the best text is never passed over"
    if beams.done:
        return [], best
    return [BeamPosition(*each) for each in zip(tips, positions, candidates, strict=True)], best


def with_known(decision: Decision, known: tuple[Candidate, ...]) -> Decision:
    """Return a decision that begins with the candidates after the last known token."""
    if not known:
        return decision
    return with_options(decision, candidates=(known, *decision.options.candidates))


def _decides(beams: Beams, candidates: list[tuple[Candidate, ...] | None], bounded: bool) -> bool:
    if not bounded and beams.rules.seed is None:  # what is drawn competes by bounded scores
        return None not in candidates
    return beams.is_certain(candidates)


def _candidates_at(
    parts: list[VerifiedRow], position: TreePosition | None
) -> tuple[Candidate, ...] | None:
    return (
        None
        if position is None
        else parts[position[0]].decision.options.candidates[position[1] + 1]
    )


def _child(
    children: list[dict[tuple[int, int], int]], position: TreePosition, token: int
) -> TreePosition | None:
    """Return where `token` after a place was verified, if it was."""
    number, node = position
    child = children[number].get((node, token))
    return None if child is None else (number, child)
