"""Draft policies: which sources run, how much the draft model is asked for, what is verified."""

from collections.abc import Sequence
from typing import NamedTuple

from draftwerk.speculative.drafting.budget import CandidateNodes
from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.rationing import Choice, DraftRationing, RationedRow
from draftwerk.speculative.protocol.rounds import Draft
from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.tree import DraftTree


class Estimates(NamedTuple):
    """What was learned of acceptance and of costs."""

    controller: Controller
    rationing: DraftRationing


class DraftPolicy:
    """Any draft is allowed, so those are verified that save time. It has no state."""

    def choices(
        self,
        estimates: Estimates,
        turn: int,
        rows: Sequence[tuple[RationedRow, float]],
        step_ms: float,
    ) -> list[Choice]:
        """Run the sources that pay, and others in turn for a share of the time."""
        return estimates.rationing.choose(turn, rows, step_ms)

    def model_lengths(self, estimates: Estimates, prepared: Prepared) -> list[int]:
        """Ask for as much as is expected to pay, now and then for a probe."""
        lengths = [0] * len(prepared.round.rows)
        takers = [row for row in prepared.rows if row.sequence.takes_model]
        found = estimates.controller.model_lengths([row.row_tree for row in takers], prepared.load)
        for row, length in zip(takers, found, strict=True):
            lengths[row.place] = length
        return lengths

    def select(
        self,
        estimates: Estimates,
        prepared: Prepared,
        model_drafts: tuple[Draft, ...],
        model_ms: float,
    ) -> list[Draft]:
        """Choose the nodes of all rows that save the most time together."""
        controller, rationing = estimates
        candidates = candidate_nodes(prepared, model_drafts)
        outcome = controller.admit(candidates, prepared.load, model_ms)
        drafts = [*prepared.blank]
        for row, nodes, saved_ms in zip(
            prepared.rows, outcome.nodes, outcome.saved_ms, strict=True
        ):
            sequence, tree = row.sequence, row.row_tree.tree
            pays = rationing.pays(sequence, saved_ms)
            # A head whose tree was only now requested has proposed nothing yet.
            if len(tree) and (pays or sequence.head is None or sequence.head.head_tree):
                sequence.breaker.learn(pays)
            drafts[row.place] = tree.draft(nodes, row.choice.wants_topk)
        return drafts


DRAFT_KIND = kind(NUMBERS["draft"], 0)
DRAFT_POLICY = DraftPolicy()


def candidate_nodes(prepared: Prepared, model_drafts: tuple[Draft, ...]) -> list[CandidateNodes]:
    """Merge the draft model's drafts into the rows' trees; return what may be chosen of each."""
    for row in prepared.rows:
        if row.sequence.takes_model:
            _add_draft(row.row_tree.tree, model_drafts[row.place])
    return [row.row_tree.candidate_nodes() for row in prepared.rows]


def _add_draft(tree: DraftTree, draft: Draft) -> None:
    """Merge the draft model's guesses into a tree."""
    indices = [-1]  # of each drafted node in the tree, from the root on; -2 where it found no room
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        above = indices[parent + 1]
        node = tree.add(above, token, DRAFT_KIND) if above >= -1 else -1
        indices.append(node if node >= 0 else -2)
