"""A prompt that is read and not continued."""

from dataclasses import KW_ONLY, dataclass

from msgspec.structs import replace

from draftwerk.speculative.load.size_limits import RefusedError, RequestSizes
from draftwerk.speculative.options.request_checks import check_prompt, known_count
from draftwerk.speculative.options.scored_prompt import ScoredPrompt
from draftwerk.speculative.request import EncodedRequest
from draftwerk.speculative.requests.further_outputs import FurtherOutputs
from draftwerk.speculative.requests.pooling import NOT_POOLED, PoolingOutput, PoolingParams
from draftwerk.speculative.rounds import Decision, Row, VerifiedRow
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.row_parts.state_sums import joined_sums
from draftwerk.speculative.sequence import RoundPlan, SequenceProgress, Taken


def check_read(request: EncodedRequest, sizes: RequestSizes) -> None:
    """Raise RefusedError for a prompt that is too long, though it may fill the context."""
    check_prompt(request, sizes.vocab_size)
    count, most = known_count(request), sizes.context_max
    if count > most:
        raise RefusedError(f"a text has {count} tokens; {most} are the most")


@dataclass(eq=False)
class PooledPrompt(ScoredPrompt):
    """What the scheduler queues, admits and preempts; its last row ends it."""

    _: KW_ONLY
    pooling: PoolingParams
    """The reading that is wanted of the prompt."""
    pooling_output: PoolingOutput = NOT_POOLED
    """What is known so far."""

    @property
    def scores(self) -> bool:
        return self.pooling.takes_all and self.scored < self.request.prompt_count

    @property
    def reusable(self) -> list[int]:
        return self.tokens[:1] if self.pooling.whole else super().reusable

    def scored_span(self, start: int, stop: int) -> tuple[int, int]:
        last = self.request.prompt_count - 1
        if self.pooling.whole:  # reported by the last row, which is computed from the beginning
            first = 0 if self.pooling.pooling == "mean" else last
            return (first, stop) if stop > last else (stop, stop)
        first = max(start, self.scored if self.pooling.takes_all else last)
        return first, max(first, stop)

    def row(self, plan: RoundPlan, start: int, stop: int, draft_max: int) -> Row | None:
        row = super().row(plan, start, stop, draft_max)
        if row is None:
            return None
        first, last = self.scored_span(start, stop)
        pools = self.pooling.pooling is not None and first < last
        answers = self.pooling.answers if first < last else ()
        row = with_options(row, scored=(first, last), pools=pools, answers=answers)
        return replace(row, samples=False)

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        ((row, decision, _),) = parts
        self.advance_computed(row.stop)
        found = self.read(row, decision)
        if found is None:
            return Taken()
        self.times.begin_decode(now_s)
        further = FurtherOutputs(pooling_output=found)
        return Taken((SequenceProgress(self, finish_reason="stop", further=further),), ends=True)

    def read(self, row: Row, decision: Decision) -> PoolingOutput | None:
        """Take in what a row has come to; returns the whole once the prompt is read."""
        self.scored = max(self.scored, row.stop)
        self.pooling_output = PoolingOutput(
            joined_sums(self.pooling_output.state_sum, decision.options.state_sum),
            tuple(each.logprob for each in decision.options.prompt_logprobs),
        )
        return self.pooling_output if row.stop == self.request.prompt_count else None
