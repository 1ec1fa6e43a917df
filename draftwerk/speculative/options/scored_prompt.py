"""A prompt of whose tokens something is reported: their log-probabilities, or what they pool."""

from dataclasses import dataclass

from draftwerk.speculative.options.extended_sequence import with_outputs
from draftwerk.speculative.requests.further_outputs import ScoredTokens
from draftwerk.speculative.rounds import Row, VerifiedRow
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.sequence import (
    RoundPlan,
    Sequence,
    SequenceProgress,
    Taken,
)


@dataclass(eq=False)
class ScoredPrompt(Sequence):
    """A text that reports the log-probabilities of its prompt's tokens."""

    scored: int = 0
    """Prompt tokens whose log-probability was reported or state was added, or is not wanted."""
    alternatives: int = -1
    """Alternatives to report beside each log-probability; -1 reports none."""

    @property
    def scores(self) -> bool:
        """Whether every prompt token from `scored` on is still to be computed for a report."""
        return self.alternatives >= 0 and self.scored < self.request.prompt_count

    @property
    def reusable(self) -> list[int]:
        return self.tokens[: max(1, self.scored)] if self.scores else self.tokens

    def scored_span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the positions of a row after which something is to be reported."""
        if not self.scores:
            return 0, 0
        first = max(start, self.scored - 1)
        return first, max(first, min(stop, self.request.prompt_count - 1))

    def row(self, plan: RoundPlan, start: int, stop: int, draft_max: int) -> Row | None:
        row = super().row(plan, start, stop, draft_max)
        if row is None or not self.scores:
            return row
        scored = self.scored_span(start, stop)
        return with_options(row, scored=scored, prompt_logprobs=self.alternatives)

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        scored = self.score(parts[0].row, parts[0].decision.options.prompt_logprobs)
        taken = super().take(parts, now_s)
        if scored is None:
            return taken
        updates = taken.updates or (SequenceProgress(self),)
        return taken._replace(updates=tuple(with_outputs(one, scored=scored) for one in updates))

    def score(self, row: Row, logprobs: tuple[ChosenLogprob, ...]) -> ScoredTokens | None:
        """Take in what a row has reported of the prompt; returns what is new.

        Nothing comes before the first token: it is certain.
        """
        if row.options.prompt_logprobs < 0 or not self.scores:
            return None
        start, stop = self.scored, min(row.stop, self.request.prompt_count - 1) + 1
        self.scored = max(start, stop)
        if not start:
            logprobs = (ChosenLogprob(0.0), *logprobs)
        return ScoredTokens(tuple(self.tokens[start : self.scored]), logprobs)
