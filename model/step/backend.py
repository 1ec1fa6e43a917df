"""What a runner needs beside the forward pass, in torch or in a faster twin."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.draft_head.chains import ChainDrafter
from draftwerk.model.draft_head.head import HeadStep
from draftwerk.model.reference import kv_pages as pages
from draftwerk.model.reference import sampler
from draftwerk.model.reference.sampler import SamplingRequest, TopTokens
from draftwerk.model.step.presampled import Presample, broken_alone
from draftwerk.model.text.grammar import Grammars
from draftwerk.speculative.protocol.rounds import ChosenLogprob


class Choose(Protocol):
    """`model.reference.sampler.choose_many`: which token the seeded target says, for each ask."""

    def __call__(self, logits: Tensor, requests: Sequence[SamplingRequest], /) -> list[int]: ...


class ReportLogprobs(Protocol):
    """`reference.sampler.logprobs`: for each (logits row, chosen token, alternatives wanted)."""

    def __call__(
        self, logits: Tensor, asked: Sequence[tuple[int, int, int]], /
    ) -> list[ChosenLogprob]: ...


class RankTopK(Protocol):
    """`reference.sampler.best_tokens`: the `count` best tokens of each row, best first."""

    def __call__(self, logits: Tensor, count: int, /) -> list[TopTokens]: ...


class ListCandidates(Protocol):
    """`model.reference.sampler.candidates`: for each (ask, count), what could come next."""

    def __call__(
        self, logits: Tensor, asked: Sequence[tuple[SamplingRequest, int]], /
    ) -> list[tuple[tuple[int, float], ...]]: ...


class CopyPages(Protocol):
    """`reference.kv_pages.copy_blocks` and `move_slots`: (from, to), all as if at once."""

    def __call__(self, pages: Pages, pairs: Sequence[tuple[int, int]], /) -> None: ...


class Backend(NamedTuple):
    """The small operations of a round."""

    choose: Choose
    report: ReportLogprobs
    rank: RankTopK
    offer: ListCandidates
    copy_blocks: CopyPages
    move_slots: CopyPages
    presample: Presample = broken_alone


TORCH_BACKEND = Backend(
    sampler.choose_many,
    sampler.logprobs,
    sampler.best_tokens,
    sampler.candidates,
    pages.copy_blocks,
    pages.move_slots,
)


class LoadedModel(NamedTuple):
    """A model ready to run: all that a Runner or a Drafter is made of, and no sequence yet."""

    forward: Forward
    pages: Pages
    vocab_size: int
    backend: Backend = TORCH_BACKEND
    grammars: Grammars | None = None
    """None where the model came without a tokenizer."""
    step: HeadStep | None = None
    """A draft head's, where there is one; its forward then keeps `states`."""
    host_batches: bool = False
    """Whether the forward takes its batches in host memory and sends them itself."""
    chains: ChainDrafter | None = None
    """What guesses whole chains at once, of a draft model on a GPU."""

    @property
    def states(self) -> Tensor | None:
        """Return what the target's head read in the latest step [S, H], if that is kept."""
        return getattr(self.forward, "states", None)

    def run(self, builder: BatchBuilder) -> Tensor:
        """Return the logits of a round."""
        device = torch.device("cpu") if self.host_batches else self.pages.keys.device
        return self.forward(builder.batch(device), self.pages)
