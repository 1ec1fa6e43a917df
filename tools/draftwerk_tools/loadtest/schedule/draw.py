"""From options to the plan of a run."""

from collections.abc import Iterator

from msgspec.structs import replace

from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.schedule.plan import (
    Cancellations,
    Planned,
    closed_times,
    open_times,
    plan,
    replayed_times,
)
from draftwerk_tools.loadtest.workloads.prompt import Workload

DEFAULT_REQUESTS = 100


def settled(options: LoadTestOptions) -> LoadTestOptions:
    """Fill in what was left open; `ValueError` for what contradicts itself."""
    loops = [options.concurrency is not None, options.rate is not None, options.replay]
    if sum(loops) > 1:
        raise ValueError("--concurrency, --rate and --replay exclude each other")
    if options.transport == "ws" and options.endpoint != "responses":
        raise ValueError("--transport ws needs --endpoint responses")
    if not any(loops):
        options = replace(options, concurrency=1)
    if options.requests is None and options.duration_s is None and not options.replay:
        options = replace(options, requests=DEFAULT_REQUESTS + options.warmup)
    return options


def draw(options: LoadTestOptions, workload: Workload) -> Iterator[Planned]:
    """Draw the arrivals of an open loop at once; a closed loop's plan comes as it is needed."""
    cancellations = Cancellations(options.cancel_fraction, options.cancel_after_s)
    return plan(workload, _times(options, workload), cancellations, options.seed, options.skip)


def _times(options: LoadTestOptions, workload: Workload) -> Iterator[float | None]:
    if options.replay:
        if workload.timestamps_s is None:
            raise ValueError("--replay needs a workload file whose lines all have a timestamp")
        return iter(
            replayed_times(
                workload.timestamps_s, options.time_scale, options.requests, options.duration_s
            )
        )
    if options.rate is None:
        return closed_times(options.requests)
    drawn = open_times(
        options.rate,
        options.burstiness,
        f"{options.seed}/{options.skip}" if options.skip else str(options.seed),
        options.requests,
        options.duration_s,
    )
    return iter(drawn)
