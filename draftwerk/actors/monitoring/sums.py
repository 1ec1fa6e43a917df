"""Sums of snapshots: counters that go on over several engines, such as those of one model."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from draftwerk.actors.monitoring.device_clock import GAPS_S
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.speculative.load.stats import SchedulerStats

T = TypeVar("T", bound=Struct)
N = TypeVar("N", int, float)

STORE_GAUGES = ("bytes", "blocks")
"""The figures of a store that are no counters."""


def counted(found: list[Snapshot], now: Snapshot) -> Snapshot:
    """Return `now` with the counters of all that were found added instead of its own."""
    actors, models = [each.actors for each in found], [each.models for each in found]
    store = added(each.store for each in found)
    return replace(
        now,
        counts=summed(SchedulerStats, [each.counts for each in found]),
        actors=replace(
            now.actors,
            restarts=sum(each.restarts for each in actors),
            mailbox_waits=_histograms([each.mailbox_waits for each in actors]),
        ),
        models=replace(
            now.models,
            recoveries=sum(each.recoveries for each in models),
            device_busy_s=added(each.device_busy_s for each in models),
            device_gaps=_histogram([each.device_gaps for each in models], GAPS_S),
        ),
        store=store | {name: now.store.get(name, 0) for name in STORE_GAUGES if name in store},
        request_stages=_histograms([each.request_stages for each in found]),
        audits=added(each.audits for each in found),
    )


def summed(kind: type[T], found: list[T]) -> T:
    """Return counters with each field added: numbers, numbers by word, numbers by position."""
    total: dict[str, Any] = {}
    for field in fields(kind):
        values = [getattr(each, field.name) for each in found]
        if field.type in (int, float):
            total[field.name] = sum(values)
        elif field.type == list[int]:
            total[field.name] = [*map(sum, zip_longest(*values, fillvalue=0))]
        else:
            total[field.name] = added(values)
    return kind(**total)


def added(counters: Iterable[Mapping[str, N]]) -> dict[str, N]:
    """Return counters by word with each word added."""
    total: dict[str, N] = {}
    for each in counters:
        for word, value in each.items():
            total[word] = total[word] + value if word in total else value
    return total


def _histogram(found: list[Histogram], bounds: tuple[float, ...]) -> Histogram:
    total = Histogram(bounds)
    for each in found:
        if each.bounds == bounds:
            total.counts = [sum(pair) for pair in zip(total.counts, each.counts, strict=True)]
            total.total += each.total
    return total


def _histograms(found: list[dict[str, Histogram]]) -> dict[str, Histogram]:
    bounds = {name: waits.bounds for each in found for name, waits in each.items()}
    return {
        name: _histogram([each[name] for each in found if name in each], limits)
        for name, limits in bounds.items()
    }
