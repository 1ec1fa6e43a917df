"""Compare routers on virtual time: `python -m benchmarks.cluster.routing`.

`--fit` runs ours with several weights of a decoding row instead. Nothing here is measured on
hardware: the replicas are the model of `fleet.py`.
"""

import argparse
import copy
import random
from collections.abc import Sequence
from typing import Any

from benchmarks.cluster.fleet import Fleet, FleetResult, Speed, fleet
from benchmarks.cluster.routers import ByCost, compared
from benchmarks.cluster.traces import BLOCK, TRACES, RequestTrace
from draftwerk_cluster.replica_load import RoutingCosts

RATES = {"mooncake": 0.8, "agents": 4.2, "hot": 4.2, "cold": 4.2}
"""Requests in a second for each replica: near what the best router can serve."""
OURS, OUR_DOORS = "by cost (ours)", "by cost, 4 doors"
USUAL_SPEED = Speed()
WEIGHTS = (48.0, 128.0, 192.0, 384.0, 768.0)


def simulated(
    trace: RequestTrace,
    size: int,
    seconds: float,
    router: Any,
    seed: int,
    speed: Speed = USUAL_SPEED,
) -> FleetResult:
    """Return what one router makes of a trace."""
    rng = random.Random(seed)
    return Fleet(copy.deepcopy(trace), router, fleet(size, speed), seconds, rng).run()


def ours(size: int, doors: int = 1, costs: RoutingCosts | None = None) -> ByCost:
    """Return draftwerk's router for so many replicas."""
    return ByCost(BLOCK, size, doors, costs or RoutingCosts())


def row(name: str, found: FleetResult) -> str:
    """Return a line of the table."""
    return (
        f"| {name} | {found.goodput:.1f} | {found.first_token_s(0.5):.2f} | "
        f"{found.first_token_s(0.99):.2f} | {100 * found.hit_share:.0f} | {found.spread:.2f} | "
        f"{found.queue_max} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each trace and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--traces", nargs="*", choices=list(TRACES), default=list(TRACES))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fit", action="store_true", help="ours alone, with several weights")
    options = parser.parse_args(arguments)
    for size in options.replicas:
        for name in options.traces:
            rate = RATES[name] * size
            trace = TRACES[name](random.Random(options.seed), rate, options.seconds)
            print(f"\n{name}, {size} replicas, {options.seconds:g} s, {rate:.0f} requests/s\n")
            print("| router | good requests/s | TTFT p50 s | p99 s | cached % | spread | queue |")
            print("|---|---|---|---|---|---|---|")
            for label, router in candidates(size, options.fit).items():
                found = simulated(trace, size, options.seconds, router, options.seed)
                print(row(label, found), flush=True)
    return 0


def candidates(size: int, fit: bool) -> dict[str, Any]:
    """Return the routers to run, by name."""
    if fit:
        return {
            f"decode {weight:g}, hot {hot:g}": ours(
                size, 1, RoutingCosts(decode_tokens=weight, hot_uses=hot)
            )
            for weight in WEIGHTS
            for hot in (8.0, 1e9)
        }
    return {**compared(), OURS: ours(size), OUR_DOORS: ours(size, 4)}


if __name__ == "__main__":
    raise SystemExit(main())
