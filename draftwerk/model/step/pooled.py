"""Sums of the states that a round's rows pool."""

from collections.abc import Sequence

import torch
from torch import Tensor

from draftwerk.model.step.row_plan import RowPlan
from draftwerk.speculative.protocol.state_sums import FRACTION_BITS, STATE_MAX


def pooled_sums(states: Tensor, plans: Sequence[RowPlan]) -> dict[int, bytes | None]:
    """Return the sum of each row's states, by number of row; None of broken ones.

    The states [S, hidden] are those of the round that have no logits.
    """
    found: dict[int, bytes | None] = {}
    for plan in plans:
        own = states[plan.pooled.start : plan.pooled.stop].double().cpu()
        found[plan.number] = _sum(own) if bool((own.abs() <= STATE_MAX).all()) else None
    return found


def _sum(states: Tensor) -> bytes:
    """Return the sum as `state_sums` has it; rounding a number depends on nothing else."""
    fixed = (states * 2.0**FRACTION_BITS).round().to(torch.int64)
    return fixed.sum(0).numpy().tobytes()
