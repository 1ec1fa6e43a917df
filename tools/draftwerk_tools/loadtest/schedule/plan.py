"""The plan of a run, a pure function of its seed: which user sends what and when, and which hang
up."""

from collections.abc import Iterable, Iterator
from itertools import count, islice, takewhile
from random import Random

from msgspec import Struct

from draftwerk_tools.loadtest.schedule.rates import arrivals, parse_rate
from draftwerk_tools.loadtest.workloads.prompt import Workload, WorkloadPrompt


class Planned(Struct, frozen=True):
    """One session; `at_s` is None in a closed loop, where a user comes when it is free.

    `cancel_after_s` counts from the moment each of its requests is sent.
    """

    index: int
    at_s: float | None
    prompt: WorkloadPrompt
    cancel_after_s: float | None = None


class Cancellations(Struct, frozen=True):
    """The fraction of sessions that hang up, after an exponential time with this mean."""

    fraction: float = 0.0
    mean_s: float = 1.0

    def draw(self, seed: int, index: int) -> float | None:
        rng = Random(f"{seed}/cancel/{index}")
        return rng.expovariate(1 / self.mean_s) if rng.random() < self.fraction else None


def plan(
    workload: Workload,
    times: Iterable[float | None],
    cancellations: Cancellations,
    seed: int,
    skip: int = 0,
) -> Iterator[Planned]:
    """Pair each arrival with its prompt; lazily, because a closed loop may go on for ever.

    With `skip` it goes on where another plan of that many sessions has ended.
    """
    for index, at_s in enumerate(times):
        place = skip + index
        yield Planned(index, at_s, workload.prompt(place), cancellations.draw(seed, place))


def open_times(
    rate: str, burstiness: float, seed: int | str, requests: int | None, duration_s: float | None
) -> list[float]:
    """Draw the arrival times of an open loop, ended by a count, a duration or both."""
    if requests is None and duration_s is None:
        raise ValueError("an open loop needs a number of requests or a duration")
    drawn = arrivals(parse_rate(rate, duration_s), burstiness, Random(f"{seed}/arrivals"))
    return _limited(drawn, requests, duration_s)


def replayed_times(
    timestamps_s: list[float], scale: float, requests: int | None, duration_s: float | None
) -> list[float]:
    """Replay recorded arrivals from their first one, `scale` times as slow."""
    first = min(timestamps_s)
    times = sorted((at - first) * scale for at in timestamps_s)
    return _limited(iter(times), requests, duration_s)


def closed_times(requests: int | None) -> Iterator[None]:
    """Yield one turn per session; without end if the run is limited by time alone."""
    return (None for _ in (range(requests) if requests is not None else count()))


def _limited(times: Iterator[float], requests: int | None, duration_s: float | None) -> list[float]:
    within = times if duration_s is None else takewhile(lambda at: at <= duration_s, times)
    return list(islice(within, requests))
