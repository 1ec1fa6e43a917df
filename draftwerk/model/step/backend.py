"""What a runner is made of: a forward pass, and a backend of small operations beside it.

Backends are torch (`model.reference`), the CPU's kernels (`model.native`) and a GPU's
(`model.gpu`); twins have equal file names. What a backend has no kernel for it takes from torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor

from draftwerk.model.batch.batch import (
    BatchState,
    Forward,
    HeldStates,
    Pages,
    RecurrentForward,
    StatesForward,
)
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.draft_head.chains import ChainDrafter
from draftwerk.model.draft_head.head_windows import HeadWindows
from draftwerk.model.draft_head.tree import Drafter
from draftwerk.model.reference import kv_pages, sampler
from draftwerk.model.reference.sampler import SamplingRequest, TopTokens
from draftwerk.model.reference.shared_pages import SharedPages
from draftwerk.model.step.presampled import Presample, check_finite_only
from draftwerk.model.text.grammar import Grammars
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.protocol.rounds import ChosenLogprob

HeadT = TypeVar("HeadT", bound=Drafter, covariant=True)
UNREAD_JOURNAL = MoveJournal()
"""The journal of private pages, which end with their process."""


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


class TurnSlots(Protocol):
    """Copies slots, their keys rotated by some positions."""

    def __call__(
        self, pages: Pages, sources: Sequence[int], targets: Sequence[int], turn: int, /
    ) -> None: ...


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
class BoundHead(Generic[HeadT]):
    """A draft head, and what has the states that it reads."""

    step: HeadT
    forward: HeldStates
    windows: HeadWindows | None = None
    """What it keeps of sequences, where it does."""
    name: str = "a small network"
    """What it is, for people."""

    @property
    def states(self) -> Tensor:
        """Return those of the latest step's outputs [S, width]."""
        states = self.forward.states
        assert states is not None, "asked for before the first step"
        return states


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run: all that a runner is made of, and no sequence yet."""

    forward: Forward
    pages: Pages
    vocab_size: int
    backend: Backend = TORCH_BACKEND
    grammars: Grammars | None = None
    """None where the model came without a tokenizer."""
    draft_head: BoundHead[Drafter] | None = None
    host_batches: bool = False
    """Whether the forward takes its batches in host memory and sends them itself."""
    chains: ChainDrafter | None = None
    """What guesses whole chains at once, of a draft model on a GPU."""
    turn_slots: TurnSlots | None = None
    """What brings a segment's slots to another place; None where segments cannot be reused."""
    adapters: Mapping[str, int] = field(default_factory=dict[str, int])
    """The numbers of the forward's adapters, by their digests."""
    shared: SharedPages | None = None
    """Where the pages are, if the server owns their memory."""

    @property
    def journal(self) -> MoveJournal:
        """Where the runner notes how far it came with copies and moves."""
        return UNREAD_JOURNAL if self.shared is None else self.shared.journal

    def on_scratch(self) -> "LoadedModel":
        """Return the model over pages of its own: shared ones may hold what others rely on.

        Layers with windows have no blocks of their own there.
        """
        keys, window = self.pages.keys, self.pages.window
        if self.shared is None and window is None:
            return self
        planes = len(keys) + (0 if window is None else len(window.keys))
        pages = kv_pages.private_pages((planes, *keys.shape[1:]), keys.dtype)
        return replace(self, pages=pages, shared=None)

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]]) -> None:
        """Take states of the latest round along the nodes that were accepted."""
        if rows:
            cast(RecurrentForward, self.forward).advance(rows, self.pages)

    @property
    def states(self) -> Tensor:
        """Return what the head read of the latest batch's outputs [S, hidden]."""
        states = cast(StatesForward, self.forward).states
        assert states is not None, "asked for before the first step"
        return states

    def run(self, builder: BatchBuilder) -> Tensor:
        """Return the logits of a round."""
        device = torch.device("cpu") if self.host_batches else self.pages.keys.device
        return self.forward(builder.batch(device), self.pages)
