"""What a device remembers of a sequence, and what that does to its logits."""

from collections import Counter
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from speculative.rounds import Opening, Row
from speculative.sampling import Sampling


class BadRow(ValueError):
    """A row that cannot be computed, with the reason in words for the client."""


@dataclass(slots=True)
class Sequence:
    """Known tokens of one sequence, counted when its sampling asks."""

    tokens: list[int]
    prompt_count: int
    sampling: Sampling
    counts: Counter[int] = field(init=False)
    """How often each token is in the output."""
    prompt: set[int] = field(init=False)

    def __post_init__(self) -> None:
        penalised = self.sampling.edits_logits
        self.counts = Counter(self.tokens[self.prompt_count :]) if penalised else Counter()
        self.prompt = set(self.tokens[: self.prompt_count]) if penalised else set()

    def extend(self, news: tuple[int, ...]) -> None:
        """Append committed tokens."""
        self.tokens.extend(news)
        if self.sampling.edits_logits:
            self.counts.update(news)


class Histories:
    """The live sequences of one device, by id."""

    def __init__(self) -> None:
        self.sequences: dict[int, Sequence] = {}

    def close(self, sequence_ids: SequenceOf[int]) -> None:
        """Forget sequences; an unknown one was never sent here, which is fine."""
        for sequence_id in sequence_ids:
            self.sequences.pop(sequence_id, None)

    def read(self, row: Row) -> Sequence:
        """Take in a row's opening and news. Raises BadRow for a sequence never opened."""
        if row.opening is not None:
            self.sequences[row.sequence_id] = opened(row.opening)
        sequence = self.sequences.get(row.sequence_id)
        if sequence is None:
            raise BadRow(f"sequence {row.sequence_id} was never opened")
        if row.news:
            sequence.extend(row.news)
        return sequence


def opened(opening: Opening) -> Sequence:
    """Return the state that an opening stands for."""
    return Sequence(list(opening.tokens), opening.prompt_count, opening.sampling)
