"""A model with approximations beside the exact one: how far its texts are, and what its steps take.

For each prompt the exact model answers greedily; then both ones' logits before each token of that
answer are compared.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk_tools.trials.blend_trial import BlendTrial
from draftwerk_tools.trials.format_difference import Distances, distances

REPEATS = 5


class Needle(NamedTuple):
    """A long text that ends in a question, and the tokens of the right answer."""

    tokens: list[int]
    answer: list[int]


class ApproximationTrial:
    """Two trials, of the exact model and of the other, each over pages of its own."""

    def __init__(self, exact: BlendTrial, other: BlendTrial) -> None:
        self.exact, self.other = exact, other

    def compare(self, prompts: Sequence[Sequence[int]], answer_count: int) -> Iterator[Distances]:
        """Yield how far the other model is over the exact one's answer to each prompt."""
        for prompt in prompts:
            read = self.exact.read(prompt, tokens=answer_count).sequence
            answer = read.tokens[len(prompt) :][:answer_count]
            wanted = self.exact.logits(read, answer[:-1])
            self.exact.close(read)
            own = self.other.read(prompt).sequence
            yield distances(wanted, self.other.logits(own, answer[:-1]))
            self.other.close(own)

    def find(self, needles: Sequence[Needle]) -> tuple[int, int]:
        """Return how many answers are right: of the exact model, and of the other."""
        right = [
            [trial.answer(each.tokens, len(each.answer)) == each.answer for each in needles]
            for trial in (self.exact, self.other)
        ]
        return sum(right[0]), sum(right[1])

    def step_ms(self, rows: int, context: int) -> tuple[float, float]:
        """Return the milliseconds of a step of rows that decode a token each, likewise."""
        return _step_ms(self.exact, rows, context), _step_ms(self.other, rows, context)

    @property
    def token_bytes(self) -> tuple[int, int]:
        """What a token's keys and values take, likewise."""
        return _token_bytes(self.exact), _token_bytes(self.other)


def _step_ms(trial: BlendTrial, rows: int, context: int) -> float:
    pages = trial.runner.pages
    each = context // pages.block_size + 1
    builder = BatchBuilder(pages.block_size)
    for row in range(rows):
        blocks = tuple(range(row * each, (row + 1) * each))
        builder.add([0], context, blocks, NO_DRAFT, samples=True)
    times: list[float] = []
    for _ in range(REPEATS):
        begun = perf_counter()
        trial.runner.parts.run(builder)
        times.append(1e3 * (perf_counter() - begun))
    return round(median(times), 3)


def _token_bytes(trial: BlendTrial) -> int:
    pages = trial.runner.pages
    slots = pages.keys.shape[1] * pages.block_size
    return (pages.keys.nbytes + pages.values.nbytes) // slots
