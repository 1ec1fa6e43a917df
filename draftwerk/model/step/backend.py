"""What a runner is made of: a forward pass, and a backend of small operations beside it.

Backends are torch (`model.reference`), the CPU's kernels (`model.native`) and a GPU's
(`model.gpu`); twins have equal file names. What a backend has no kernel for it takes from torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Forward, Pages, RowsBuilder
from draftwerk.model.reference import kv_pages, sampler
from draftwerk.model.reference.sampler import SamplingRequest, TopTokens
from draftwerk.model.step.presampled import Presample, check_finite_only
from draftwerk.model.text.grammar import Grammars
from draftwerk.speculative.rounds import Round
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob


class Choose(Protocol):
    """`reference.sampler.choose_many`: the seeded target's token, for each request."""

    def __call__(self, logits: Tensor, requests: Sequence[SamplingRequest], /) -> list[int]: ...


class ReportLogprobs(Protocol):
    """`reference.sampler.logprobs`: for each (logits row, chosen token, alternatives wanted)."""

    def __call__(
        self, logits: Tensor, choices: Sequence[tuple[int, int, int]], /
    ) -> list[ChosenLogprob]: ...


class RankTopK(Protocol):
    """`reference.sampler.best_tokens`: the `count` best tokens of some rows, best first."""

    def __call__(self, logits: Tensor, rows: Sequence[int], count: int, /) -> list[TopTokens]: ...


class ListCandidates(Protocol):
    """`reference.sampler.candidates`: the `count` best next tokens, for each (request, count)."""

    def __call__(
        self, logits: Tensor, counted: Sequence[tuple[SamplingRequest, int]], /
    ) -> list[tuple[tuple[int, float], ...]]: ...


class CopyPages(Protocol):
    """`reference.kv_pages.copy_blocks` and `move_slots`: (from, to), all as if at once."""

    def __call__(self, pages: Pages, pairs: Sequence[tuple[int, int]], /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What a round needs beside the forward pass, on one kind of device."""

    choose: Choose
    logprobs: ReportLogprobs
    top_tokens: RankTopK
    candidates: ListCandidates
    copy_blocks: CopyPages
    move_slots: CopyPages
    presample: Presample = check_finite_only


TORCH_BACKEND = Backend(
    choose=sampler.choose_many,
    logprobs=sampler.logprobs,
    top_tokens=sampler.best_tokens,
    candidates=sampler.candidates,
    copy_blocks=kv_pages.copy_blocks,
    move_slots=kv_pages.move_slots,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableModel:
    """A model ready to run, and no sequence yet; `loaded_model.py` has what options add to it."""

    forward: Forward
    pages: Pages
    vocab_size: int
    backend: Backend = TORCH_BACKEND
    grammars: Grammars | None = None
    """None where the model came without a tokenizer."""
    host_batches: bool = False
    """Whether the forward takes its batches in host memory and sends them itself."""

    def move(self, round_: Round) -> None:
        """Copy blocks and move slots, before the model writes into them."""
        self.backend.copy_blocks(self.pages, round_.copies)
        self.backend.move_slots(self.pages, round_.moves)

    def run(self, builder: RowsBuilder) -> Tensor:
        """Return the logits of a round."""
        device = torch.device("cpu") if self.host_batches else self.pages.keys.device
        return self.forward(builder.batch(device), self.pages)
