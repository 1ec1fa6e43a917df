"""The walk of a row of a batch down its draft."""

from dataclasses import dataclass, field

from draftwerk.model.step.row_plan import RowPlan
from draftwerk.speculative.verify import TreeWalk


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
