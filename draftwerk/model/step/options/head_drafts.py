"""The draft head behind a verified round: trees for rows that go on, candidates for beams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.model.batch.batch import Pages
from draftwerk.model.draft_head.tree import BEST, Drafter, Start, TextPages, within
from draftwerk.model.native.gumbel import fastest
from draftwerk.model.step.loaded_model import BoundHead
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.row_walk import RowPlan, RowWalk
from draftwerk.model.step.target_runner import StepOption, StepProgress
from draftwerk.speculative.options.beams.survivors import (
    UnexpandedSurvivor,
    VerifiedBranch,
    unexpanded_survivors,
)
from draftwerk.speculative.row_parts.beam_rows import HeadCandidates
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sources.sequence_noise import SequenceNoise


class _BeamPosition(NamedTuple):
    """Where a beam search probably continues, and the row of logits whose state is there."""

    plan: RowPlan
    survivor: UnexpandedSurvivor
    logits_row: int


@dataclass(slots=True, frozen=True)
class HeadDrafts(StepOption):
    """Runs the head for the rows whose drafts ask for it."""

    head: BoundHead[Drafter]
    pages: Pages

    def draft_next(self, step: StepProgress) -> None:
        """Add trees and candidates to decisions; trees that were presampled are kept."""
        wanting = [walk for walk in step.walks if walk.plan.draft.wants_levels]
        if not wanting:
            return
        ahead = [walk for walk in wanting if walk.plan.decides and walk.goes_on]
        places = 0
        for walk, tree in _trees(self.head, ahead, step.presampled, self.pages):
            feedback = step.decisions[walk.plan.number].feedback
            step.tell(walk.plan, feedback=replace(feedback, head_tree=tree))
            places += bool(tree)
        searching = [walk for walk in wanting if not walk.plan.decides]
        for plan, candidates in _candidates(self.head, step, searching):
            known = step.decisions[plan.number].options.head_candidates
            step.tell_option(plan, head_candidates=(*known, candidates))
            places += 1
        step.report = replace(step.report, head_rows=places)


def _trees(
    head: BoundHead[Drafter], walks: Sequence[RowWalk], presampled: Presampled, pages: Pages
) -> Iterator[tuple[RowWalk, tuple[HeadNode, ...]]]:
    """Yield the draft tree that follows each walk's last committed token."""
    missing: list[RowWalk] = []
    for walk in walks:
        if tree := presampled.head_tree.get(walk.plan.first):
            yield walk, within(tree, _budget(walk))
        elif _follows(head, walk.plan.row.sequence_id):
            missing.append(walk)
    if not missing:
        return
    states, noise = head.states, fastest()
    starts = [
        Start(
            states,
            walk.place,
            walk.tokens[-1],
            walk.plan.row.stop + len(walk.tokens),
            SequenceNoise(walk.plan.sequence.sampling, noise),
            walk.plan.row.sequence_id,
            _text_pages(walk, pages),
        )
        for walk in missing
    ]
    budgets = [*map(_budget, missing)]
    most = max(budgets)
    for walk, budget, tree in zip(missing, budgets, head.step.propose(starts, most), strict=True):
        yield walk, tree if budget == most else within(tree, budget)


def _budget(walk: RowWalk) -> int:
    """Return how many tokens ahead are wanted: the next round adds one that is not drafted."""
    left = walk.plan.row.tokens_left - len(walk.tokens) - 1
    return max(1, min(left, walk.plan.draft.wants_levels))


def _text_pages(walk: RowWalk, pages: Pages) -> TextPages:
    """Return where all that is committed is kept, but for the last token."""
    row = walk.plan.row
    return TextPages(pages, row.stop + len(walk.tokens) - 1, row.blocks, row.options.window_blocks)


def _follows(head: BoundHead[Drafter], sequence_id: int) -> bool:
    """Whether a head drafts for a sequence: one that keeps something of each, for those alone."""
    return head.windows is None or sequence_id in head.windows


def _candidates(
    head: BoundHead[Drafter], step: StepProgress, branches: Sequence[RowWalk]
) -> Iterator[tuple[RowPlan, HeadCandidates]]:
    """Yield the head's candidates where beam searches probably continue."""
    positions = [
        position for search in _searches(branches) for position in _positions(step, search)
    ]
    if not positions:
        return
    rows = [position.logits_row for position in positions]
    guesses = head.step(
        head.states[rows], [position.survivor.token for position in positions], BEST
    )
    for position, tokens, logprobs in zip(positions, guesses.tokens, guesses.logprobs, strict=True):
        offered = tuple(zip(tokens, logprobs, strict=True))
        yield (
            position.plan,
            HeadCandidates(position.survivor.node, position.survivor.token, offered),
        )


def _positions(step: StepProgress, search: Sequence[RowWalk]) -> Iterator[_BeamPosition]:
    """Yield where one search continues, if the target computed the state there."""
    first = search[0].plan
    assert first.row.options.branch is not None
    survivors = unexpanded_survivors(
        [_verified_branch(step, walk.plan) for walk in search],
        first.row.options.branch.width,
        first.sequence.sampling.stop_token_ids,
    )
    for survivor in survivors:
        plan = search[survivor.row].plan
        logits_row = plan.logits_row(survivor.node)
        if logits_row is not None:
            yield _BeamPosition(plan, survivor, logits_row)


def _verified_branch(step: StepProgress, plan: RowPlan) -> VerifiedBranch:
    assert plan.row.options.branch is not None
    known = (plan.row.options.branch.known,) if plan.begins_known else ()
    candidates = step.decisions[plan.number].options.candidates
    return VerifiedBranch(plan.row.options.branch.score, plan.draft, (*known, *candidates))


def _searches(branches: Sequence[RowWalk]) -> list[list[RowWalk]]:
    """Return the branches of each search."""
    by_group: dict[int, list[RowWalk]] = {}
    for walk in branches:
        branch = walk.plan.row.options.branch
        assert branch is not None
        by_group.setdefault(branch.group_id, []).append(walk)
    return list(by_group.values())
