"""What a row of a blended prompt does."""

from draftwerk.speculative.protocol.plain import Plain


class SegmentRead(Plain, frozen=True):
    """Tokens of a segment that are read as if it stood alone, in a block table of its own."""

    at: int
    """Where the segment begins in the prompt."""
    start: int
    """The first token read, counted in the segment."""
    stop: int
    blocks: tuple[int, ...]
    offset: int = 0
    """Added to the positions in the segment."""


class SegmentCopy(Plain, frozen=True):
    """Slots of a segment's table that are copied to the sequence's own."""

    blocks: tuple[int, ...]
    start: int
    """The first slot copied, counted in the segment."""
    stop: int
    to: int
    """The sequence's slot that the first one goes to."""
    turn: int
    """Positions by which keys are rotated on the way."""


class RowBlend(Plain, frozen=True):
    """What a row of a blended prompt does, in this order; all of it may be done twice.

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
