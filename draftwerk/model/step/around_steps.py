"""Wrappers of a step, by a model's kind and where its pages are."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.speculative.rounds import Proposal, Verdict


@runtime_checkable
class StepWrapper(Protocol):
    """A forward pass that needs something of whole steps."""

    def around(self, step: Callable[[Proposal], Verdict], /) -> Callable[[Proposal], Verdict]:
        """Return a step with that, which knows no sequence yet."""
        ...


def attached(
    parts: LoadedModel, step: Callable[[Proposal], Verdict]
) -> Callable[[Proposal], Verdict]:
    """Return a step with what a model's kind and the place of its pages ask for."""
    step = noting_use(parts, step)
    return parts.forward.around(step) if isinstance(parts.forward, StepWrapper) else step


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
        used: list[int] = []
        for row in proposal.round.rows:
            known = row.new_sequence is None and row.options.blend is None
            first = row.start // block_size if known else 0
            used += row.blocks[first:]
            used += row.options.window_blocks[first:]
        shared.use(used)
        return step(proposal)

    return noting
