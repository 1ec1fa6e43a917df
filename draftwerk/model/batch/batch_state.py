"""The recurrent state of a sequence, as a batch reads and writes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchState:
    """One sequence's tokens in a batch, and the slots of its recurrent state.

    tokens   first ... first + count   known, from position `start` on; then a node for each parent
    """

    first: int
    count: int
    parents: tuple[int, ...]
    """The parents of a draft tree's nodes, by index; -1 for the last known token."""
    start: int
    source: int
    """The slot that is read; -1 for the state before the first token."""
    target: int
    """The slot that is written; -1 for none."""
    saves: tuple[tuple[int, int], ...] = ()
    """(position, slot) that are written where the sequence comes to the position."""
