"""A ring of what the actors did lately, for a picture of how they overlap."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

ACTORS = ("tokenizer", "cache", "draft", "verifier", "detokenizer")
SPANS_MAX = 20_000
"""A minute or so of a busy server, under 5 MB."""


class Span(NamedTuple):
    """Something an actor did; times in seconds of one clock."""

    actor: str
    what: str
    begun: float
    ended: float


class OpenSpan(AbstractContextManager[None]):
    """Something that an actor is at until the block ends."""

    __slots__ = ("_trace", "_what", "actor", "begun")

    def __init__(self, trace: "Trace", actor: str, what: str) -> None:
        self._trace, self.actor, self._what = trace, actor, what
        self.begun = 0.0

    def __enter__(self) -> None:
        self.begun = self._trace.clock()
        self._trace.open_spans.add(self)

    def __exit__(self, *error: object) -> None:
        trace = self._trace
        trace.open_spans.discard(self)
        trace.spans.append(Span(self.actor, self._what, self.begun, trace.clock()))


@dataclass(slots=True)
class Trace:
    """The latest spans of all actors."""

    clock: Callable[[], float] = perf_counter
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=SPANS_MAX))
    open_spans: set[OpenSpan] = field(default_factory=set[OpenSpan])

    def span(self, actor: str, what: str) -> AbstractContextManager[None]:
        """Record how long the block takes, waiting included."""
        return OpenSpan(self, actor, what)

    def add(self, actor: str, spans: Iterable[tuple[str, float, float]]) -> None:
        """Record what was timed elsewhere, by the same clock: what it was, its begin and end."""
        self.spans.extend(Span(actor, *span) for span in spans)

    def ages_s(self) -> dict[str, float]:
        """Return how long each actor has been at the work it is doing; 0 for one that waits."""
        ages: dict[str, float] = dict.fromkeys(ACTORS, 0.0)
        now = self.clock()
        for span in self.open_spans:
            ages[span.actor] = max(ages.get(span.actor, 0.0), now - span.begun)
        return ages

    def chrome(self) -> list[dict[str, object]]:
        """Return the spans as events of Chrome's trace format: one line an actor, microseconds."""
        lines = {actor: n for n, actor in enumerate(sorted({s.actor for s in self.spans}))}
        names: list[dict[str, object]] = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": n, "args": {"name": actor}}
            for actor, n in lines.items()
        ]
        return names + [
            {
                "ph": "X",
                "name": span.what,
                "pid": 1,
                "tid": lines[span.actor],
                "ts": 1e6 * span.begun,
                "dur": 1e6 * (span.ended - span.begun),
            }
            for span in self.spans
        ]
