"""A sequence whose prompt is read and not continued."""

from dataclasses import dataclass

from draftwerk.speculative.protocol.rounds import Decision, Row
from draftwerk.speculative.protocol.state_sums import joined_sums
from draftwerk.speculative.requests.reading import NOT_READ, Reading, ReadPrompt
from draftwerk.speculative.requests.sequence import Sequence


@dataclass(slots=True, eq=False)
class ReadSequence(Sequence):
    """What the scheduler queues, admits and preempts; its last row ends it."""

    read_prompt: ReadPrompt = NOT_READ
    """What is known so far."""

    @property
    def reading(self) -> Reading:
        """What is wanted of the prompt."""
        reading = self.request.reading
        assert reading is not None
        return reading

    @property
    def scores(self) -> bool:
        return self.reading.takes_all and self.scored < self.request.prompt_count

    def scored_span(self, start: int, stop: int) -> tuple[int, int]:
        last = self.request.prompt_count - 1
        first = max(start, self.scored if self.reading.takes_all else last)
        return first, max(first, stop)

    def read(self, row: Row, decision: Decision) -> ReadPrompt | None:
        """Take in what a row has come to; returns the whole once the prompt is read."""
        self.scored = max(self.scored, row.stop)
        self.read_prompt = ReadPrompt(
            joined_sums(self.read_prompt.state_sum, decision.state_sum),
            tuple(each.logprob for each in decision.prompt_logprobs),
        )
        return self.read_prompt if row.stop == self.request.prompt_count else None
