"""A prompt that is read and not continued."""

from dataclasses import KW_ONLY, dataclass

from msgspec.structs import replace

from draftwerk.speculative.options.scored_prompt import ScoredPrompt
from draftwerk.speculative.protocol.rounds import Decision, Row, VerifiedRow
from draftwerk.speculative.protocol.state_sums import joined_sums
from draftwerk.speculative.requests.reading import NOT_READ, Reading, ReadPrompt
from draftwerk.speculative.requests.sequence import RoundPlan, SequenceProgress, Taken


@dataclass(eq=False)
class PooledPrompt(ScoredPrompt):
    """What the scheduler queues, admits and preempts; its last row ends it."""

    _: KW_ONLY
    reading: Reading
    """The reading that is wanted of the prompt."""
    read_prompt: ReadPrompt = NOT_READ
    """What is known so far."""

    @property
    def scores(self) -> bool:
        return self.reading.takes_all and self.scored < self.request.prompt_count

    @property
    def reusable(self) -> list[int]:
        return self.tokens[:1] if self.reading.whole else super().reusable

    def scored_span(self, start: int, stop: int) -> tuple[int, int]:
        last = self.request.prompt_count - 1
        if self.reading.whole:  # reported by the last row, which is computed from the beginning
            first = 0 if self.reading.pooling == "mean" else last
            return (first, stop) if stop > last else (stop, stop)
        first = max(start, self.scored if self.reading.takes_all else last)
        return first, max(first, stop)

    def row(self, plan: RoundPlan, start: int, stop: int, draft_max: int) -> Row | None:
        row = super().row(plan, start, stop, draft_max)
        if row is None:
            return None
        first, last = self.scored_span(start, stop)
        pools = self.reading.pooling is not None and first < last
        answers = self.reading.answers if first < last else ()
        return replace(row, samples=False, scored=(first, last), pools=pools, answers=answers)

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        ((row, decision, _),) = parts
        self.advance_computed(row.stop)
        found = self.read(row, decision)
        if found is None:
            return Taken()
        self.deadlines.begin_decode(now_s)
        return Taken((SequenceProgress(self, finish_reason="stop", read_prompt=found),), ends=True)

    def read(self, row: Row, decision: Decision) -> ReadPrompt | None:
        """Take in what a row has come to; returns the whole once the prompt is read."""
        self.scored = max(self.scored, row.stop)
        self.read_prompt = ReadPrompt(
            joined_sums(self.read_prompt.state_sum, decision.state_sum),
            tuple(each.logprob for each in decision.prompt_logprobs),
        )
        return self.read_prompt if row.stop == self.request.prompt_count else None
