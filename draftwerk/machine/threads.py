"""How many threads a model runs on: as many as its CPUs, or the number that measures fastest."""

from collections.abc import Callable, Iterator
from time import perf_counter

from draftwerk.machine.host import affinity
from draftwerk.machine.quota import quota_cpus

ALWAYS_ALL = 4
"""Up to here every CPU helps; measuring would only add noise."""
GAIN_MIN = 0.03
"""Least relative gain for which more threads are taken: they cost other processes their CPUs."""


def usable_cpus() -> int:
    """Return the CPUs that affinity and the container's quota leave."""
    return min(affinity(), quota_cpus() or affinity())


def counts_to_try(cpus: int) -> Iterator[int]:
    """Yield numbers of threads, fewest first: all, three quarters, half, ... of the CPUs.

    Halves meet the two usual steps: one thread a core instead of two, and one socket of two.
    """
    if cpus <= ALWAYS_ALL:
        yield cpus
        return
    counts = {cpus}
    while cpus > ALWAYS_ALL:
        counts |= {cpus * 3 // 4, cpus // 2}
        cpus //= 2
    yield from sorted(counts)


def fastest_count(
    cpus: int,
    measure: Callable[[int], float],
    budget_s: float,
    clock: Callable[[], float] = perf_counter,
) -> int:
    """Return the number of threads with the least measured time, the fewest of those near it.

    Most threads first, since that is the answer most often: when `budget_s` is used up, what has
    been measured decides.
    """
    counts = sorted(counts_to_try(cpus), reverse=True)
    if len(counts) == 1:
        return counts[0]
    end = clock() + budget_s
    times: dict[int, float] = {}
    for count in counts:
        times[count] = measure(count)
        if clock() >= end:
            break
    bound = min(times.values()) * (1 + GAIN_MIN)
    return min(count for count, taken in times.items() if taken <= bound)
