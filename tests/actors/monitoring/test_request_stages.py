"""The stages of a request: one follows the other, and they add up to its time."""

from typing import TypeVar

import anyio
import pytest
from msgspec.structs import replace

from draftwerk.actors.engine import running
from draftwerk.actors.events.client_events import Ended
from draftwerk.actors.monitoring.request_stages import STAGES, RequestStages, stage_spans
from draftwerk.actors.pipeline import EngineParts
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.scheduler import RoundLimits
from tests.actors.loops import on_virtual_time
from tests.actors.test_engine import PLAIN, Bench, BenchDevice
from tests.support.toy import ToyTarget
from tests.support.waiting import AtOnce

R = TypeVar("R")
STEP_S = 0.25
PROMPT = tuple(range(1, 10))


class SlowDevice(BenchDevice):
    """Every step takes the same time at least."""

    async def run(self, work: Proposal) -> Verdict:
        await anyio.sleep(STEP_S)
        verdict = await super().run(work)
        return replace(verdict, report=replace(verdict.report, device_ms=1e3 * STEP_S))


def slow_parts(limits: RoundLimits) -> EngineParts:
    bench = Bench()
    return bench.parts(
        target=lambda: SlowDevice(bench, ToyTarget(24, 4).step), limits=limits, worker=AtOnce()
    )


def test_each_stage_ends_where_the_next_begins() -> None:
    stages = RequestStages()
    times = StageTimes(0.25, 0.5, 1.5, 3.5, 7.5, 15.5)
    stages.observe(stage_spans(times, decided_s=31.5, ended_s=63.5))
    found = {name: seconds.total for name, seconds in stages.copy().items()}
    assert found == dict(zip(STAGES, (0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), strict=True))


def test_no_stage_is_missing_and_none_ends_before_it_begins() -> None:
    for times in (StageTimes(0.0, 1.0, 1.5, 3.5), StageTimes(0.0, 1.0, 1.5, 3.5, 4.0, 2.5)):
        with pytest.raises(AssertionError):
            stage_spans(times, decided_s=15.5, ended_s=31.5)


@on_virtual_time
async def test_the_stages_of_a_request_add_up_to_its_time() -> None:
    limits = RoundLimits(draft_max=0, tokens_max=4)  # the prompt takes three rounds
    async with running(slow_parts(limits)) as engine:
        await anyio.sleep(1.0)
        begun = anyio.current_time()
        async with engine.generate(PROMPT, PLAIN, request_id="r") as events:
            assert isinstance([event async for event in events][-1], Ended)
        took_s = anyio.current_time() - begun
        found = engine.snapshot().request_stages
    assert [sum(seconds.counts) for seconds in found.values()] == [1] * len(STAGES)
    spent = {name: seconds.total for name, seconds in found.items()}
    assert sum(spent.values()) == pytest.approx(took_s)
    assert spent["device_wait"] == pytest.approx(0.0, abs=1e-6)
    assert spent["prefill"] == pytest.approx(3 * STEP_S)
    assert spent["decode"] == pytest.approx(5 * STEP_S)  # the first of six ends prefill


@on_virtual_time
async def test_what_a_request_waits_is_told_to_its_client() -> None:
    """The second waits for the first's round, and then for its own to begin."""
    limits = RoundLimits(draft_max=0, tokens_max=16, pipeline_depth=2)
    async with running(slow_parts(limits)) as engine:
        ends: list[Ended] = []

        async def ask(name: str) -> None:
            async with engine.generate(PROMPT, PLAIN, request_id=name) as events:
                last = [event async for event in events][-1]
                assert isinstance(last, Ended)
                ends.append(last)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "first")
            await anyio.sleep(0.1 * STEP_S)
            tasks.start_soon(ask, "second")
    first, second = (end.stats for end in ends)
    assert (first.waited_s, first.read_s) == pytest.approx((0.0, STEP_S), abs=1e-6)
    assert second.waited_s == pytest.approx(0.9 * STEP_S, abs=1e-6)
    assert second.device_wait_s == pytest.approx(0.9 * STEP_S, abs=1e-6)
    assert second.read_s == pytest.approx(STEP_S, abs=1e-6)
