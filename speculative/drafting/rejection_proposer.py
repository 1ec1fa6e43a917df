"""A proposer for the classical rules: the draft model's chains, whole, and nothing else.

How long a chain is to be is decided before it is drawn, from what is known of the model and the
load. Nothing looks at the drawn tokens: a choice that did would bias the text.
"""

from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Draft, Round
from draftwerk.speculative.sources.acceptance import DRAFT, kind


class RejectionProposer(Proposer):
    """Runs the draft model where it pays, and passes its drawn chains on unchanged."""

    def propose(
        self, round_: Round, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        """Return the draft model's drafts as they are, and those of beam searches."""
        prepared = self._prepare(round_)
        self._prepared = None
        longest = max((len(draft.tokens) for draft in model_drafts), default=0)
        self._controller.learn_model(longest, model_ms)
        drafts = [NO_DRAFT] * len(round_.rows)
        for index, row_tree in zip(prepared.rows, prepared.row_trees, strict=True):
            drafts[index] = model_drafts[index]
            row_tree.tree.add_chain(-1, drafts[index].tokens, kind(DRAFT, 0))  # to learn from
        load = prepared.load.token_count + sum(len(draft.tokens) for draft in drafts)
        self._draft_searches(round_, drafts, load)
        return tuple(drafts)
