"""Rows of a round: where each lies in the batch, and the walk down its draft to what it commits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.presampled import PackedTree, Presampled
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.rounds import Decision, Draft, Row
from draftwerk.speculative.verify import TreeWalk, accept


class RowPlan(NamedTuple):
    """A row, its sequence and its draft, as they lie in the batch.

        rows of logits   first         first + 1   first + 2 ...
        after            known token   node 0      node 1 ...

    Where the row begins known (see there), node 0 is at `first`.
    """

    number: int
    """The number of the row in its round."""
    row: Row
    sequence: CachedSequence
    draft: Draft
    first: int
    """The row's first row of logits."""
    block_size: int
    tables: tuple[tuple[int, ...], ...] = ()
    """Further block tables, of layers that do not share those of the row."""
    hidden: range = range(0)
    """Its own of the round's hidden states without logits."""

    @property
    def begins_known(self) -> bool:
        """Whether it is known what follows the last known token: only nodes are computed."""
        return self.row.start == self.row.stop and self.row.options.computes_all

    @property
    def decides(self) -> bool:
        """Whether the row walks down its draft; one of a search is only asked what is likely."""
        return not self.row.options.in_group

    @property
    def wants_topk(self) -> bool:
        """Whether the draft sources want the target's top-k."""
        return self.draft.wants_topk and self.decides

    @property
    def wants_head_tree(self) -> bool:
        """Whether the draft head shall grow a tree from where the row ends."""
        return self.draft.wants_levels > 0 and self.decides

    @property
    def presampled(self) -> bool:
        """Whether tokens can be sampled at all nodes before one is reached."""
        # Penalties and grammars depend on the tokens before a node, which are not decided yet.
        by_path = self.sequence.logit_edits is not None or self.sequence.matcher is not None
        return self.decides and not by_path

    def logits_rows(self) -> range:
        """Return the rows of logits of the last known token and of every node."""
        return range(self.first, self.first + len(self.draft.tokens) + (not self.begins_known))

    def logits_row(self, node: int) -> int | None:
        """Return the row of logits after a node, if it was computed in this round."""
        row = self.first + node + (not self.begins_known)
        return row if row >= self.first else None

    def node_slot(self, node: int, blocks: Sequence[int] = ()) -> int:
        """Return where a node's keys and values are, in the flattened (block, offset) axis.

        `blocks` is the table of some layers, if it is not the row's first.
        """
        block, offset = divmod(self.row.stop + node, self.block_size)
        return (blocks or self.row.blocks)[block] * self.block_size + offset


def topk_rows(plans: Iterable[RowPlan]) -> Iterator[int]:
    """Yield the rows of logits whose best tokens are to be reported."""
    return (row for plan in plans if plan.wants_topk for row in plan.logits_rows())


def presample_requests(plan: RowPlan) -> list[SamplingRequest]:
    """Return the sampling requests at all nodes, if none depends on the tokens before it."""
    if not plan.presampled:
        return []
    known, sampling = len(plan.sequence.tokens), plan.sequence.sampling
    nodes = (
        SamplingRequest(plan.first + index, known + 1 + depth, sampling)
        for index, depth in enumerate(plan.draft.depths(), start=1)
    )
    return [root_request(plan), *nodes]


def root_request(plan: RowPlan) -> SamplingRequest:
    """Return the request after the last known token, where nothing depends on those before it."""
    return SamplingRequest(plan.first, len(plan.sequence.tokens), plan.sequence.sampling)


def packed_tree(plan: RowPlan) -> PackedTree:
    """Return the draft as a device needs it to follow its own answers."""
    draft = plan.draft
    slots = [plan.node_slot(node) for node in range(len(draft.tokens))]
    sampling = plan.sequence.sampling
    return PackedTree(
        plan.first,
        draft.parents,
        draft.tokens,
        slots,
        plan.row.stop,
        sampling,
        plan.wants_head_tree,
    )


def path_moves(plan: RowPlan, path: Sequence[int]) -> list[tuple[int, int]]:
    """Return the (from, to) slots that put an accepted path right after the known tokens."""
    # Some layers may have slots of their own for the same tokens.
    return [
        (plan.node_slot(node, table), plan.node_slot(index, table))
        for table in (plan.row.blocks, *plan.tables)
        for index, node in enumerate(path)
        if node != index
    ]


BROKEN = "the model computed something that is not a number"


@dataclass(slots=True)
class RowWalk(TreeWalk):
    """A row's walk; its answers are numbered as the batch's rows of logits."""

    plan: RowPlan = field(kw_only=True)
    error: str = field(default="", init=False)
    """Why the row failed on the way, in words for the client."""

    @classmethod
    def begin(cls, plan: RowPlan) -> "RowWalk":
        """Return the walk of a row that has just been computed."""
        return cls(plan.draft, plan.sequence.sampling.stop_token_ids, plan.first, plan=plan)

    def decision(self) -> Decision:
        """Return what the walk has come to."""
        if self.error:
            return Decision(error=self.error)
        return Decision(tokens=tuple(self.tokens), path=tuple(self.path))


def broken_logits(plan: RowPlan, presampled: Presampled) -> str:
    """Return why a row fails that needs all its logits, reached or not; or nothing."""
    if not plan.decides and not presampled.broken.isdisjoint(plan.logits_rows()):
        return BROKEN
    return ""


def verify(
    backend: Backend, logits: Tensor, walks: Sequence[RowWalk], presampled: Presampled
) -> None:
    """Accept what the seeded target's answers allow, all rows a level at a time.

    The rule is `speculative.verify`; here the answers are computed that are not known beforehand.
    """
    walking = [walk for walk in walks if accept(walk, presampled.tokens)]
    # Rows whose next answer was known have walked on already: what is left asks for one together,
    # as a call for each row would cost more than the sampling itself.
    while walking:
        questions = [
            (walk, request)
            for walk in walking
            if (request := _request(walk, presampled)) is not None
        ]
        tokens = backend.choose(logits, [request for _, request in questions]) if questions else ()
        walking = [
            walk
            for (walk, _), token in zip(questions, tokens, strict=True)
            if walk.accept(token) and accept(walk, presampled.tokens)
        ]


def _request(walk: RowWalk, presampled: Presampled) -> SamplingRequest | None:
    """Return the sampling request at the node where a walk is; None ends the walk in error."""
    # Only where the walk comes to: behind a rejected node nothing of it is used.
    if walk.place in presampled.broken:
        walk.error = BROKEN
        return None
    try:
        return walk.plan.sequence.sampling_request(walk.place, walk.tokens)
    except BadGrammar as error:
        walk.error = f"the grammar cannot be followed: {error}"
        return None
