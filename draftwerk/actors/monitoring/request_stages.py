"""Where the time of a request went: stages, one after the other, that add up to all of it."""

from dataclasses import dataclass, field
from itertools import pairwise

from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.speculative.requests.times import StageTimes

STAGES = ("inbox", "tokenise", "queue", "device_wait", "prefill", "decode", "detokenise")
STAGE_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0, 300.0,
)  # fmt: skip


@dataclass(slots=True)
class RequestStages:
    """Seconds of each stage, of every choice that came to its end.

    inbox | tokenise | queue | device_wait | prefill | decode | detokenise
          |          |       |             |         |        ^ its last tokens were decided
          |          |       |             |         ^ its first tokens were
          |          |       |             ^ the first of its own began to be computed
          |          |       ^ it got blocks, and a row in a round
          |          ^ its tokens were known
          ^ the tokenizer took it
    """

    seconds: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(STAGE_S) for name in STAGES}
    )

    def observe(self, spans: list[tuple[str, float, float]]) -> None:
        """Add a choice that has come through all stages."""
        for name, start, stop in spans:
            self.seconds[name].observe(stop - start)

    def copy(self) -> dict[str, Histogram]:
        """Return the histograms of this moment, by stage."""
        return {name: seconds.copy() for name, seconds in self.seconds.items()}


def stage_spans(
    times: StageTimes, decided_s: float, ended_s: float
) -> list[tuple[str, float, float]]:
    """Return when each stage of a choice began and ended.

    Its last tokens were decided at `decided_s`, and sent at `ended_s`.
    """
    waited = (times.arrived_s, times.tokenise_s, times.queue_s, times.device_s)
    begun = (*waited, times.prefill_s, times.decode_s, decided_s, ended_s)
    edges = [at for at in begun if at is not None]
    assert len(edges) == len(STAGES) + 1, "a text ended before its first stages"
    assert edges == sorted(edges), "a stage ended before it began"
    return [(name, *edge) for name, edge in zip(STAGES, pairwise(edges), strict=True)]
