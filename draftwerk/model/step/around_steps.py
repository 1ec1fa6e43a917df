"""Wrappers of a step, by a model's kind and where its pages are."""

from collections.abc import Callable

from draftwerk.model.step.backend import LoadedModel
from draftwerk.model.step.whole_prompts import WholePrompts, begun_again
from draftwerk.speculative.protocol.rounds import Proposal, Verdict


def attached(
    parts: LoadedModel, step: Callable[[Proposal], Verdict]
) -> Callable[[Proposal], Verdict]:
    """Return a step with what a model's kind and the place of its pages ask for."""
    step = noting_use(parts, step)
    return begun_again(step) if isinstance(parts.forward, WholePrompts) else step


def noting_use(
    parts: LoadedModel, step: Callable[[Proposal], Verdict]
) -> Callable[[Proposal], Verdict]:
    """Return the step; over shared pages it first notes which blocks come into use.

    Those behind a row's start, that is; a new sequence's and a blended prompt's all.
    """
    if parts.shared is None:
        return step
    shared, block_size = parts.shared, parts.pages.block_size

    def noting(proposal: Proposal) -> Verdict:
        found: list[int] = []
        for row in proposal.round.rows:
            known = row.new_sequence is None and row.blend is None
            first = row.start // block_size if known else 0
            found += row.blocks[first:]
            found += row.window_blocks[first:]
        shared.use(found)
        return step(proposal)

    return noting
