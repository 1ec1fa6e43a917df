"""The snapshots of all replicas as one: counters and sizes added, ages at their worst."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from msgspec.structs import fields

from draftwerk.actors.monitoring.device_clock import GAPS_S
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.snapshot import Snapshot

WORST = ("progress_age_s",)
OTHERWISE = ("processes", "actor_ages_s", "moves", "replicas")
"""What is no counter, though its type is that of one."""
SUMMED = tuple(
    each.name for each in fields(Snapshot) if each.type in (int, float) and each.name not in WORST
)
BY_WORD = tuple(
    each.name
    for each in fields(Snapshot)
    if each.type in (dict[str, int], dict[str, float]) and each.name not in OTHERWISE
)


def merged(
    replicas: Mapping[str, Snapshot],
    *,
    open_replicas: tuple[str, ...],
    draining: bool,
    moves: dict[str, int],
) -> Snapshot:
    """Return one snapshot of all replicas, with each one's own in `replicas`."""
    found = list(replicas.values())
    sums = {name: sum(getattr(each, name) for each in found) for name in SUMMED}
    words = {name: _added(getattr(each, name) for each in found) for name in BY_WORD}
    positions = zip_longest(*(each.accepted_by_position for each in found), fillvalue=0)
    processes = {
        f"{replica_id} {name}": process
        for replica_id, each in replicas.items()
        for name, process in each.processes.items()
    }
    fields: dict[str, Any] = {
        **sums,
        **words,
        "accepted_by_position": tuple(map(sum, positions)),
        "device_gaps": _histogram([each.device_gaps for each in found], GAPS_S),
        "mailbox_waits": _histograms([each.mailbox_waits for each in found]),
        "request_stages": _histograms([each.request_stages for each in found]),
        "processes": processes,
        "progress_age_s": max((each.progress_age_s for each in found), default=0.0),
        "actor_ages_s": _worst(each.actor_ages_s for each in found),
        "target_up": bool(open_replicas),
        "open_replicas": open_replicas,
        "draft_up": _all([each.draft_up for each in found]),
        "draining": draining,
        "moves": moves,
        "replicas": dict(replicas),
    }
    return Snapshot(**fields)


def _added(counters: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for each in counters:
        for word, value in each.items():
            total[word] += value  # pyright: ignore[reportArgumentType]
    return dict(total)


def _worst(ages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for each in ages:
        for word, value in each.items():
            worst[word] = max(worst.get(word, 0.0), value)
    return worst


def _all(found: Iterable[bool | None]) -> bool | None:
    known = [each for each in found if each is not None]
    return all(known) if known else None


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
