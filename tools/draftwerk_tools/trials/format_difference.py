"""How far one format's next-token distributions are from another's, and how long its steps take.

Both are measured on texts that the model itself has sampled, over the tokens after their prompts.
"""

from collections.abc import Sequence
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk_tools.trials.whole_rows import whole_rows

BLOCK_SIZE = 16
REPEATS = 7


class TextSample(NamedTuple):
    """A prompt and what was sampled after it."""

    tokens: list[int]
    prompt_length: int


class Distances(NamedTuple):
    """The distances at the places of one answer."""

    kl: list[float]
    """KL(exact || other), in nats."""
    same: list[bool]
    """Whether the likeliest token is the same."""

    @property
    def parts_after(self) -> int:
        """The first place where it is not; the answer's length if there is none."""
        return (*self.same, False).index(False)


class DistanceSummary(NamedTuple):
    """The distances of many answers."""

    kl_mean: float
    kl_p99: float
    same: float
    parts_after: float


def distances(exact: Tensor, other: Tensor) -> Distances:
    """Compare logits [places, vocab]."""
    wanted, ours = exact.double().log_softmax(-1), other.double().log_softmax(-1)
    return Distances(
        (wanted.exp() * (wanted - ours)).sum(-1).tolist(),
        (exact.argmax(-1) == other.argmax(-1)).tolist(),
    )


def summary(found: Sequence[Distances]) -> DistanceSummary:
    """Return what answers come to together."""
    kl = sorted(each for one in found for each in one.kl)
    return DistanceSummary(
        round(mean(kl), 6),
        round(kl[len(kl) * 99 // 100], 6),
        round(mean(each for one in found for each in one.same), 5),
        round(mean(each.parts_after for each in found), 2),
    )


class PagedModel:
    """A forward pass and pages for a few texts, each in blocks of its own."""

    def __init__(self, config: ModelConfig, forward: NativeForward, rows: int, length: int) -> None:
        self.forward = forward
        self._width = -(-length // BLOCK_SIZE)
        self._pages = pages_for(config, forward, rows * self._width)

    def logits(self, rows: Sequence[Sequence[int]], begins: Sequence[int], outputs: int) -> Tensor:
        """Return logits of the last `outputs` tokens of each row [rows * outputs, vocab].

        A row's tokens lie behind the `begins` tokens of it that are in the pages.
        """
        return self.forward(self._batch(rows, begins, outputs), self._pages)

    def step_ms(self, rows: int, context: int) -> float:
        """Return the median milliseconds of a step of rows that decode a token each."""
        batch = self._batch([[0]] * rows, [context] * rows, 1)
        times: list[float] = []
        for _ in range(REPEATS):
            begun = perf_counter()
            self.forward(batch, self._pages)
            times.append(1e3 * (perf_counter() - begun))
        return median(times)

    def _batch(self, rows: Sequence[Sequence[int]], begins: Sequence[int], outputs: int) -> Batch:
        return whole_rows(rows, begins, outputs, self._width * BLOCK_SIZE, BLOCK_SIZE)


def pages_for(config: ModelConfig, forward: NativeForward, block_count: int) -> Pages:
    """Return pages in the format of a forward pass."""
    dtype, width = forward.page_dtype, forward.page_width
    return allocate(config, block_count, BLOCK_SIZE, dtype, torch.device("cpu"), width)


def own_texts(
    model: PagedModel, prompts: Sequence[Sequence[int]], count: int, seed: int = 0
) -> list[TextSample]:
    """Return texts of `count` tokens sampled after each prompt, as likely as the model has them."""
    generator = torch.Generator().manual_seed(seed)
    texts = [TextSample(list(prompt), len(prompt)) for prompt in prompts]
    rows, begins = [text.tokens for text in texts], [0] * len(texts)
    for _ in range(count):
        chances = model.logits(rows, begins, 1).softmax(-1)
        chosen = torch.multinomial(chances, 1, generator=generator)[:, 0].tolist()
        begins = [len(text.tokens) for text in texts]
        for text, token in zip(texts, chosen, strict=True):
            text.tokens.append(token)
        rows = [[token] for token in chosen]
    return texts


def difference(
    reference: PagedModel, candidate: PagedModel, texts: Sequence[TextSample]
) -> DistanceSummary:
    """Return how far a candidate's distributions are from a reference's, over sampled tokens."""
    found: list[Distances] = []
    for text in texts:
        given, outputs = [text.tokens[:-1]], len(text.tokens) - text.prompt_length
        exact, near = (model.logits(given, [0], outputs) for model in (reference, candidate))
        found.append(distances(exact, near))
    return summary(found)
