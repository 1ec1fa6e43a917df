"""What decisions tell the draft sources: the target's top-k, and what a grammar forces next."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from draftwerk.model.reference.sampler import TopTokens
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.row_walk import RowPlan, RowWalk, topk_rows
from draftwerk.model.step.target_runner import StepOption, StepProgress
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED, Feedback, TokenTopK


@dataclass(slots=True, frozen=True)
class SourceFeedback(StepOption):
    """Reports `successor_count` best tokens after every node, and jump-forward tokens."""

    backend: Backend
    successor_count: int
    clock: Callable[[], float]

    def report(self, step: StepProgress) -> None:
        best = step.presampled.best or self._best(step)
        for walk in step.walks:
            topk = _named(walk.plan, best) if best and walk.plan.wants_topk else ()
            feedback = Feedback(topk=topk, jump_forward=_jump_forward(walk))
            if feedback != NOTHING_LEARNED:
                step.tell(walk.plan, feedback=feedback)

    def _best(self, step: StepProgress) -> Mapping[int, TopTokens]:
        """Return the best tokens by row of logits, of the rows that are to report them."""
        rows = [*topk_rows(walk.plan for walk in step.walks)] if self.successor_count else []
        if not rows:
            return {}
        assert step.logits is not None
        begun = self.clock()
        best = self.backend.top_tokens(step.logits, rows, self.successor_count)
        spent_ms = (self.clock() - begun) * 1e3
        step.report = replace(step.report, topk_rows=len(rows), topk_ms=spent_ms)
        return dict(zip(rows, best, strict=True))


def _jump_forward(walk: RowWalk) -> tuple[int, ...]:
    """Return what the grammar forces after the committed tokens, if it goes on."""
    matcher = walk.plan.sequence.matcher
    if matcher is None or not walk.plan.row.draft_max or not walk.goes_on:
        return ()
    with suppress(BadGrammar):  # the next round says so, in words
        return matcher.jump_forward(walk.tokens)
    return ()


def _named(plan: RowPlan, best: Mapping[int, TopTokens]) -> tuple[TokenTopK, ...]:
    """Return the best tokens after the last known token and after every node."""
    tokens = (plan.sequence.tokens[-1], *plan.draft.tokens)
    pairs = zip(tokens, plan.logits_rows(), strict=True)
    return tuple(TokenTopK(token, *best[row]) for token, row in pairs)
