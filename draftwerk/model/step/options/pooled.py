"""Prompts that are read and not continued: sums of the hidden states that their rows pool."""

from dataclasses import dataclass

import torch
from torch import Tensor

from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.row_walk import BROKEN
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.step.target_runner import RowOutputs, StepOption, StepProgress
from draftwerk.speculative.rounds import Decision, Draft, Row
from draftwerk.speculative.row_parts.decision_options import DecisionOptions
from draftwerk.speculative.row_parts.state_sums import FRACTION_BITS, STATE_MAX


@dataclass(slots=True, frozen=True)
class PooledStates(StepOption):
    """Reports the sum of each row's states, which come behind those with logits."""

    parts: LoadedModel

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        if row.options.pools:
            outputs.hidden = range(
                row.options.scored[0] - row.start, row.options.scored[1] - row.start
            )

    def report(self, step: StepProgress) -> None:
        pooling = [plan for plan in step.rows if plan.row.options.pools and plan.hidden]
        if not pooling:
            return
        states = self.parts.states[len(step.builder.outputs) :]
        for plan in pooling:
            pooled = states[plan.hidden.start : plan.hidden.stop].double().cpu()
            is_sound = bool((pooled.abs() <= STATE_MAX).all())
            step.decisions[plan.number] = (
                Decision(options=DecisionOptions(state_sum=_sum(pooled)))
                if is_sound
                else Decision(error=BROKEN)
            )


def _sum(states: Tensor) -> bytes:
    """Return the sum as `state_sums` has it; rounding a number depends on nothing else."""
    fixed = (states * 2.0**FRACTION_BITS).round().to(torch.int64)
    return fixed.sum(0).numpy().tobytes()
