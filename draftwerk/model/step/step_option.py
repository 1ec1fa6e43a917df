"""What a step computes beside the tokens of its rows: each option is attached to the runner.

begin ── lay_out / add_outputs ── prepare ── model ── report ── draft_ahead
(once)   (a row at a time)        (the round)         (the time behind it is no step's)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace
from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.step.presampled import NOTHING_PRESAMPLED, Presampled
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.speculative.protocol.rounds import Decision, Draft, Round, Row
from draftwerk.speculative.protocol.step_report import NO_STEP, StepReport


@dataclass(slots=True)
class RowOutputs:
    """Known tokens of a row, by index, that have outputs beside those of its last one."""

    logits: range = range(0)
    hidden: range = range(0)
    """Hidden states alone."""


@dataclass(slots=True, kw_only=True)
class StepProgress:
    """A step under way."""

    round: Round
    builder: BatchBuilder
    decisions: list[Decision]
    """One a row, by its number."""
    rows: list[RowPlan] = field(default_factory=list[RowPlan])
    """Rows that can be computed."""
    aside_s: float = 0.0
    """Time that is no part of T(tokens, context)."""
    report: StepReport = NO_STEP
    logits: Tensor | None = None
    """None where there was nothing to compute."""
    presampled: Presampled = NOTHING_PRESAMPLED
    walks: list[RowWalk] = field(default_factory=list[RowWalk])
    """Rows that sample, and came through."""

    def tell(self, plan: RowPlan, **fields: Any) -> None:
        """Add to what is decided of a row."""
        self.decisions[plan.number] = replace(self.decisions[plan.number], **fields)

    def fail(self, walk: RowWalk, error: str) -> None:
        """Have a row fail alone."""
        self.decisions[walk.plan.number] = Decision(error=error)
        self.walks.remove(walk)


class StepOption:
    """Something that rows may want of a step beside their tokens; it overrides what it needs."""

    def begin(self, round_: Round) -> None:
        """Take in a round before its rows are read."""

    def lay_out(self, builder: BatchBuilder, row: Row, sequence: CachedSequence) -> int | None:
        """Lay a row out in another way; returns its first row of logits, or None for one that is
        none of its own. Raises BadRow."""
        return None

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        """Add the known tokens of a row whose outputs it wants."""

    def prepare(self, step: StepProgress) -> None:
        """Prepare what the model reads: blocks were copied, and nothing is computed yet."""

    def report(self, step: StepProgress) -> None:
        """Add to the decisions of the rows what follows from their logits."""

    def draft_ahead(self, step: StepProgress) -> None:
        """Draft for the next round from where the rows end."""

    def check(self, sequences: Mapping[int, CachedSequence]) -> None:
        """Assert that what it keeps of sequences agrees with what is known of them."""
