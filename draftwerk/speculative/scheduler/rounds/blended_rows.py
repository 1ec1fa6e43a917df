"""The next row of a prompt whose segments are reused, and what its verdict means for the blend."""

from draftwerk.speculative.blend.blend_step import BlendStep
from draftwerk.speculative.blend.blending import Blending
from draftwerk.speculative.protocol.rounds import Decision, Row
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.scheduler.running_set import RunningSet


def next_step(
    running_set: RunningSet, sequence: Sequence, blending: Blending, tokens_left: int
) -> BlendStep | None:
    """Return the next step of a blend, or None where no blocks can be had for it."""
    end = sequence.planned + sequence.unread
    step = blending.step(sequence.tokens, sequence.planned, end, tokens_left)
    if step is None:
        need = running_set.pool.blocks_for(blending.missing())
        if not running_set.preempt_for(sequence, [need]):
            return None
        step = blending.step(sequence.tokens, sequence.planned, end, tokens_left)
    return step


def only_blends(sequence: Sequence, row: Row, decision: Decision) -> bool:
    """Take in what a row did for a blend; returns whether that was all."""
    if row.blend is None:
        return False
    blending = sequence.blending
    assert blending is not None
    blending.commit(sequence.tokens, row.blend, row.stop, decision.deviations)
    return row.blend.probes
