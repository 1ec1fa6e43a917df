"""A ring of what the actors did lately, for a picture of how they overlap."""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

ACTORS = ("tokenizer", "cache", "draft", "verifier", "detokenizer")
SPANS_MAX = 20_000
"""A minute or so of a busy server, under 5 MB."""


@dataclass(slots=True, frozen=True)
class Span:
    """Something an actor did; times in seconds of one clock."""

    actor: str
    what: str
    begun: float
    ended: float


@dataclass(slots=True)
class Trace:
    """The latest spans of all actors."""

    clock: Callable[[], float] = perf_counter
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=SPANS_MAX))
    _open: dict[int, tuple[str, float]] = field(default_factory=dict[int, tuple[str, float]])
    """Spans that have not ended: actor and beginning, by a serial number."""
    _serials: "count[int]" = field(default_factory=count)

    @contextmanager
    def span(self, actor: str, what: str) -> Generator[None]:
        """Record how long the block takes, waiting included."""
        begun = self.clock()
        serial = next(self._serials)
        self._open[serial] = actor, begun
        try:
            yield
        finally:
            del self._open[serial]
            self.spans.append(Span(actor, what, begun, self.clock()))

    def add(self, actor: str, what: str, begun: float, ended: float) -> None:
        """Record something that was timed elsewhere, by the same clock."""
        self.spans.append(Span(actor, what, begun, ended))

    def ages_s(self) -> dict[str, float]:
        """Return how long each actor has been at the work it is doing; 0 for one that waits."""
        ages: dict[str, float] = dict.fromkeys(ACTORS, 0.0)
        now = self.clock()
        for actor, begun in self._open.values():
            ages[actor] = max(ages.get(actor, 0.0), now - begun)
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
