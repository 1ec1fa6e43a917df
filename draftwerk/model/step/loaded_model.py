"""A loaded model: what runs, and all that options of a step need of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar, cast

from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.batch.option_forwards import HeldStates, RecurrentForward, StatesForward
from draftwerk.model.draft_head.chains import ChainDrafter
from draftwerk.model.draft_head.head_windows import HeadWindows
from draftwerk.model.draft_head.tree import Drafter
from draftwerk.model.reference import kv_pages
from draftwerk.model.reference.shared_pages import SharedPages
from draftwerk.model.step.backend import RunnableModel
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.rounds import Round

HeadT = TypeVar("HeadT", bound=Drafter, covariant=True)
UNREAD_JOURNAL = MoveJournal()
"""The journal of private pages, which end with their process."""


class TurnSlots(Protocol):
    """Copies slots, their keys rotated by some positions."""

    def __call__(
        self, pages: Pages, sources: Sequence[int], targets: Sequence[int], turn: int, /
    ) -> None: ...


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
class LoadedModel(RunnableModel):
    """A model ready to run: all that a runner is made of, and no sequence yet."""

    draft_head: BoundHead[Drafter] | None = None
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

    def builder(self) -> BatchBuilder:
        """Return an empty batch."""
        return BatchBuilder(self.pages.block_size, window_first=self.pages.window_first)

    def move(self, round_: Round) -> None:
        self.journal.begin(round_)
        RunnableModel.move(self, round_)
        self.journal.end(round_)

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
