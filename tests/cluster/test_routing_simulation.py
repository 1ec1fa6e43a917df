"""Routers compared on virtual time, at a size that the gate can afford."""

import random

import pytest

from benchmarks.cluster.fleet import FleetResult
from benchmarks.cluster.routers import compared
from benchmarks.cluster.routing import RATES, ours, simulated
from benchmarks.cluster.traces import TRACES

SIZE, SECONDS = 8, 30.0


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, FleetResult]]:
    found: dict[str, dict[str, FleetResult]] = {}
    for name, load in TRACES.items():
        trace = load(random.Random(1), RATES[name] * SIZE, SECONDS)
        routers = {**compared(), "ours": ours(SIZE), "4 doors": ours(SIZE, 4)}
        found[name] = {
            label: simulated(trace, SIZE, SECONDS, router, 1) for label, router in routers.items()
        }
    return found


@pytest.mark.parametrize("trace", list(TRACES))
def test_goodput_is_above_every_other_routers(
    runs: dict[str, dict[str, FleetResult]], trace: str
) -> None:
    found = {name: result.goodput for name, result in runs[trace].items()}
    others = {name: value for name, value in found.items() if name not in ("ours", "4 doors")}
    assert found["ours"] >= max(others.values()), found
    assert found["4 doors"] >= 0.95 * max(others.values()), found


def test_one_hot_prefix_overloads_no_replica(runs: dict[str, dict[str, FleetResult]]) -> None:
    hot = runs["hot"]
    assert hot["ours"].spread <= 1.3
    assert hot["prefix, load ignored"].spread > hot["ours"].spread


def test_every_request_that_came_is_accounted_for(runs: dict[str, dict[str, FleetResult]]) -> None:
    for result in (each for found in runs.values() for each in found.values()):
        assert result.done
        for job in result.done:
            assert job.arrived_s < job.first_s <= job.ended_s
            assert job.made == job.outputs
            assert 0 <= job.hit_tokens <= len(job.keys) * 128
