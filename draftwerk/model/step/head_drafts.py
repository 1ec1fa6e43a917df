"""The draft head behind a verified round: trees for rows that go on, candidates for beams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.model.batch.batch import Pages
from draftwerk.model.draft_head.tree import BEST, Start, TextPages, within
from draftwerk.model.native.gumbel import fastest
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.presampled import Presampled
from draftwerk.model.step.report import RowReport
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.speculative.options.beams.survivors import (
    UnexpandedSurvivor,
    VerifiedBranch,
    unexpanded_survivors,
)
from draftwerk.speculative.protocol.feedback import HeadNode
from draftwerk.speculative.protocol.rounds import Decision, HeadCandidates
from draftwerk.speculative.sources.sequence_noise import SequenceNoise


class WalkedRow(NamedTuple):
    """A row that came through its round."""

    walk: RowWalk
    report: RowReport

    def decision(self, ahead: "HeadDraft") -> Decision:
        """Return what is decided of the row, with the draft head's candidates behind it."""
        if self.walk.error:
            return Decision(error=self.walk.error)
        feedback = self.report.feedback
        if ahead.head_tree:
            feedback = replace(feedback, head_tree=ahead.head_tree)
        return Decision(
            tokens=tuple(self.walk.tokens),
            path=tuple(self.walk.path),
            logprobs=self.report.logprobs,
            candidates=self.report.candidates,
            head_candidates=tuple(ahead.head_candidates),
            feedback=feedback,
        )


@dataclass(slots=True)
class HeadDraft:
    """What the head drafts for one row: as in `Decision`."""

    head_tree: tuple[HeadNode, ...] = ()
    head_candidates: list[HeadCandidates] = field(default_factory=list[HeadCandidates])


class _BeamPosition(NamedTuple):
    """Where a beam search probably continues, and the row of logits whose state is there."""

    plan: RowPlan
    survivor: UnexpandedSurvivor
    logits_row: int


def draft_ahead(
    head: BoundHead | None, rows: Sequence[WalkedRow], presampled: Presampled, pages: Pages
) -> dict[int, HeadDraft]:
    """Run the head for the rows whose drafts ask for it; return what it drafts, by their numbers.

    Trees that were presampled are kept.
    """
    wanting = [row for row in rows if row.walk.plan.draft.wants_head and not row.walk.error]
    if head is None or not wanting:
        return {}
    drafts = {row.walk.plan.number: HeadDraft() for row in wanting}
    ahead = [row.walk for row in wanting if row.walk.plan.row.branch is None and row.walk.goes_on]
    for walk, tree in _trees(head, ahead, presampled, pages):
        drafts[walk.plan.number].head_tree = tree
    branches = [row for row in wanting if row.walk.plan.row.branch is not None]
    for plan, candidates in _candidates(head, branches):
        drafts[plan.number].head_candidates.append(candidates)
    return drafts


def _trees(
    head: BoundHead, walks: Sequence[RowWalk], presampled: Presampled, pages: Pages
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
            states[walk.place],
            walk.tokens[-1],
            walk.plan.row.stop + len(walk.tokens),
            SequenceNoise(walk.plan.sequence.sampling, noise),
            walk.plan.row.sequence_id,
            _text_pages(walk, pages),
        )
        for walk in missing
    ]
    budgets = [*map(_budget, missing)]
    trees = head.step.propose(starts, max(budgets))
    yield from zip(missing, map(within, trees, budgets), strict=True)


def _budget(walk: RowWalk) -> int:
    """Return how many tokens ahead are of use: the next round adds one that is not drafted."""
    return max(1, walk.plan.row.tokens_left - len(walk.tokens) - 1)


def _text_pages(walk: RowWalk, pages: Pages) -> TextPages:
    """Return where all that is committed is kept, but for the last token."""
    row = walk.plan.row
    return TextPages(pages, row.stop + len(walk.tokens) - 1, row.blocks, row.window_blocks)


def _follows(head: BoundHead, sequence_id: int) -> bool:
    """Whether a head drafts for a sequence: one that keeps something of each, for those alone."""
    return head.windows is None or sequence_id in head.windows


def _candidates(
    head: BoundHead, branches: Sequence[WalkedRow]
) -> Iterator[tuple[RowPlan, HeadCandidates]]:
    """Yield the head's candidates where beam searches probably continue."""
    positions = [one for search in _searches(branches) for one in _positions(search)]
    if not positions:
        return
    rows = [one.logits_row for one in positions]
    found = head.step(head.states[rows], [one.survivor.token for one in positions], BEST)
    for one, tokens, logprobs in zip(positions, found.tokens, found.logprobs, strict=True):
        offered = tuple(zip(tokens, logprobs, strict=True))
        yield one.plan, HeadCandidates(one.survivor.node, one.survivor.token, offered)


def _positions(search: Sequence[WalkedRow]) -> Iterator[_BeamPosition]:
    """Yield where one search continues, if the target computed the state there."""
    first = search[0].walk.plan
    assert first.row.branch is not None
    survivors = unexpanded_survivors(
        [_verified_branch(row) for row in search],
        first.row.branch.width,
        first.sequence.sampling.stop_token_ids,
    )
    for survivor in survivors:
        plan = search[survivor.row].walk.plan
        logits_row = plan.logits_row(survivor.node)
        if logits_row is not None:
            yield _BeamPosition(plan, survivor, logits_row)


def _verified_branch(row: WalkedRow) -> VerifiedBranch:
    plan = row.walk.plan
    assert plan.row.branch is not None
    known = (plan.row.branch.known,) if plan.begins_known else ()
    return VerifiedBranch(plan.row.branch.score, plan.draft, (*known, *row.report.candidates))


def _searches(branches: Sequence[WalkedRow]) -> list[list[WalkedRow]]:
    """Return the branches of each search."""
    found: dict[int, list[WalkedRow]] = {}
    for row in branches:
        branch = row.walk.plan.row.branch
        assert branch is not None
        found.setdefault(branch.group_id, []).append(row)
    return list(found.values())
