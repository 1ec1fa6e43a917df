"""The steady part of a run: after the warm-up, until no more load is offered."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct

from draftwerk_tools.loadtest.measure.rows import RequestRow


class Window(Struct, frozen=True):
    """From the first measured request to the last one started, in seconds of the run."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


def steady_window(rows: Sequence[RequestRow]) -> Window | None:
    """Return the window, or None if everything started at once.

    What comes after the last start is the tail, where the load falls away.
    """
    starts = [row.scheduled_s for row in rows if not row.warmup]
    if not starts or max(starts) <= min(starts):
        return None
    return Window(min(starts), max(starts))


def tokens_within(row: RequestRow, window: Window) -> float:
    """Return the output tokens that arrived in the window, counts spread evenly over chunks."""
    inside = slice(
        bisect_left(row.chunk_s, window.start_s), bisect_right(row.chunk_s, window.end_s)
    )
    if row.chunk_tokens:
        before = row.chunk_tokens[inside.start - 1] if inside.start else 0
        return row.chunk_tokens[inside.stop - 1] - before if inside.stop > inside.start else 0
    chunks = inside.stop - inside.start
    return (row.output_tokens or row.chunks) * chunks / row.chunks if row.chunks else 0.0


def tokens_per_s(rows: Iterable[RequestRow], window: Window) -> float:
    return sum(tokens_within(row, window) for row in rows) / window.length_s


def ended_per_s(rows: Iterable[RequestRow], window: Window) -> float:
    """Count good endings within the window, the warm-up's among them: they kept the server busy."""
    ended = sum(row.ok and window.start_s < row.ended_s <= window.end_s for row in rows)
    return ended / window.length_s
