"""The work of a row of a blended prompt."""

from collections.abc import Sequence

from draftwerk.speculative.row_parts.plain import Plain


class SegmentRead(Plain, frozen=True):
    """Tokens that are read of a prompt's beginning and a segment, in a block table of its own."""

    at: int
    """Where the segment begins in the prompt."""
    start: int
    """The first slot read."""
    stop: int
    blocks: tuple[int, ...]
    beginning: int
    """The prompt's first tokens, which are in the slots before the segment's."""

    def tokens(self, known: Sequence[int]) -> list[int]:
        """Return the tokens that are read, of a sequence's."""
        last = self.at - self.beginning + self.stop
        return [*known[: self.beginning], *known[self.at : last]][self.start : self.stop]


class SegmentCopy(Plain, frozen=True):
    """Slots of a segment's table that are copied to the sequence's own."""

    blocks: tuple[int, ...]
    start: int
    """The first slot copied."""
    stop: int
    to: int
    """The sequence's slot that the first one goes to."""
    turn: int
    """Positions by which keys are rotated on the way."""


class RowBlend(Plain, frozen=True):
    """The work of a row of a blended prompt, in this order; all of it may be done twice.

    copies      segments' slots to the row's own
    probe       start .. stop in the lowest layers, and how far they are from the copies
    reads       of segments, through all layers
    places      of start .. stop, through all layers
    """

    copies: tuple[SegmentCopy, ...] = ()
    probes: bool = False
    reads: tuple[SegmentRead, ...] = ()
    places: tuple[int, ...] = ()
    """Slots of the row, ascending, whose tokens are computed; the others stay as they are."""

    @property
    def token_count(self) -> int:
        """Tokens that are computed through all layers."""
        return len(self.places) + sum(each.stop - each.start for each in self.reads)
