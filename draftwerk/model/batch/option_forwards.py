"""Forward passes that do more than a plain one, for recurrent layers and draft heads."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.batch.batch_state import BatchState


class RecurrentForward(Forward, Protocol):
    """A `Forward` with recurrent layers."""

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        ...


class HeldStates(Protocol):
    """The states that a draft head reads of its target."""

    @property
    def states(self) -> Tensor | None:
        """The states of the outputs of the latest call [S, width], in any dtype; the hidden states
        that the target's head read, or several layers' side by side."""
        ...


class StatesForward(Forward, HeldStates, Protocol):
    """A `Forward` that serves a draft head as well."""


class KeepingForward(Protocol):
    """A `Forward` that keeps hidden states on the way."""

    kept_layers: tuple[int, ...]
    """Before which layers, ascending."""

    @property
    def kept(self) -> Tensor | None:
        """The kept states of the outputs of the latest call, side by side [S, layers * hidden]."""
        ...
