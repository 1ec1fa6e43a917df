"""Routers compared on virtual time, at a size that the gate can afford."""

import random

import pytest

from benchmarks.cluster.fleet import FleetResult, Speed
from benchmarks.cluster.routers import RoundRobin, compared
from benchmarks.cluster.routing import RATES, USUAL_SPEED, ours, simulated
from benchmarks.cluster.traces import COLD_SESSIONS, TRACES, RequestTrace

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


@pytest.mark.parametrize("trace", ["mooncake", "agents", "hot"])
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


def test_a_cold_start_does_not_herd(runs: dict[str, dict[str, FleetResult]]) -> None:
    each = COLD_SESSIONS * RATES["cold"]
    """Sessions that begin at once, for each replica."""
    cold = runs["cold"]
    for name in ("ours", "4 doors"):
        assert cold[name].queue_max <= 2 * each
        assert cold[name].spread <= 1.1
    assert cold["prefix, load ignored"].queue_max > 4 * each


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("doors", [1, 4])
def test_a_few_replicas_find_what_one_big_one_would(size: int, doors: int) -> None:
    for seed in (1, 2, 3):
        trace = TRACES["agents"](random.Random(seed), RATES["agents"] * size, SECONDS)
        found = simulated(trace, size, SECONDS, ours(size, doors), seed)
        assert found.hit_share >= 0.9 * one_big(trace, size, seed).hit_share
        assert found.spread <= 1.3


def one_big(trace: RequestTrace, size: int, seed: int) -> FleetResult:
    """Return what one replica with the speed and the cache of so many makes of a trace."""
    usual = USUAL_SPEED
    speed = Speed(
        base_s=usual.base_s,
        prefill_tokens_s=size * usual.prefill_tokens_s,
        row_s=usual.row_s / size,
        chunk=size * usual.chunk,
        cache_blocks=size * usual.cache_blocks,
    )
    return simulated(trace, 1, SECONDS, RoundRobin(), seed, speed)


def test_every_request_that_came_is_accounted_for(runs: dict[str, dict[str, FleetResult]]) -> None:
    for result in (each for found in runs.values() for each in found.values()):
        assert result.done
        for job in result.done:
            assert job.arrived_s < job.first_s <= job.ended_s
            assert job.made == job.outputs
            assert 0 <= job.hit_tokens <= len(job.keys) * 128
