"""A deadline that passes: the request has a last word in time, whatever the devices do."""

from math import inf

import anyio
import pytest

from draftwerk.actors.cache import Cache
from draftwerk.actors.engine import running
from draftwerk.actors.events.client_events import Failed, Started
from draftwerk.actors.messages import Cancel, Submit
from draftwerk.actors.requests.ledger import Entry
from draftwerk.speculative.options.service.slo_times import has_begun
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.slo import NO_SLO, Slo
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sequence import Sequence
from tests.actors import loops
from tests.actors.loops import on_both_loops, on_virtual_time, settle
from tests.actors.requests.test_ledger import Desk, Line
from tests.actors.test_cache import encoded, make_cache
from tests.actors.test_engine import PLAIN, PROMPT, Bench, events, plain, text_of
from tests.support.waiting import AtOnce

HURRIED = Options(sampling=Sampling(seed=3), tokens_max=6, ignore_eos=True, deadline_s=0.5)


@on_both_loops
async def test_a_deadline_passes_though_the_device_is_stuck() -> None:
    bench = Bench(open=anyio.Event())
    async with running(bench.parts()) as engine:
        with anyio.fail_after(loops.DEADLINE_S):
            found = await events(engine, HURRIED)
        assert [type(event) for event in found] == [Started, Failed]
        assert isinstance(found[-1], Failed)
        assert (found[-1].kind, found[-1].retry_after_ms) == ("deadline_exceeded", 0)
        assert bench.open is not None
        bench.open.set()
        assert text_of(await events(engine, PLAIN, "next")) == plain(PLAIN)
        await settle()
        assert engine.snapshot().load.blocks_used == 0
        engine.check()


@on_virtual_time
async def test_a_text_that_has_begun_outlives_its_deadline() -> None:
    bench = Bench()
    async with (
        running(bench.parts(worker=AtOnce())) as engine,
        engine.generate(PROMPT, HURRIED, request_id="r") as stream,
    ):
        assert isinstance(await stream.receive(), Started)
        await stream.receive()
        bench.open = anyio.Event()
        await anyio.sleep(0.6)
        bench.open.set()
        assert [type(event).__name__ async for event in stream][-1] == "Ended"


@on_virtual_time
async def test_a_promise_out_of_reach_is_refused_with_the_time() -> None:
    bench = Bench(open=anyio.Event())
    limits = RoundLimits(draft_max=3, rows_max=1, slo_policy="refuse")
    hurried = Options(sampling=Sampling(seed=3), tokens_max=6, slo=Slo(ttft=0.05))
    async with (
        running(bench.parts(limits=limits, worker=AtOnce())) as engine,
        engine.generate(PROMPT, PLAIN, request_id="first") as stream,
    ):
        while not engine.snapshot().load.running:
            await settle()
        async with engine.generate(PROMPT, hurried, request_id="r") as refused:
            await settle()
            await anyio.sleep(0.06)
            assert bench.open is not None
            bench.open.set()
            last = [event async for event in refused][-1]
        assert text_of([event async for event in stream]) == plain(PLAIN)
    assert isinstance(last, Failed)
    assert last.kind == "slo_unmet" and last.retry_after_ms > 0


# --- what is counted from when --------------------------------------------------------------------


def test_time_is_counted_from_where_the_client_came() -> None:
    cache = make_cache(clock=lambda: 50.0)
    options = Options(sampling=Sampling(), deadline_s=2.0, waited_s=0.5)
    first = sequence(cache, options, arrived_s=40.0)
    assert (first.times.arrived_s, first.times.expires_s) == (39.5, 41.5)
    assert sequence(cache, options).times.arrived_s == 49.5
    assert sequence(cache, Options(sampling=Sampling())).times.expires_s == inf


@pytest.mark.parametrize(
    ("committed", "ended", "begun"),
    [(((), ()), (), False), (((7,), ()), (), True), (((), ()), (1,), True)],
)
def test_a_request_that_had_a_token_before_a_crash_has_begun(
    committed: tuple[tuple[int, ...], ...], ended: tuple[int, ...], begun: bool
) -> None:
    options = Options(sampling=Sampling(), deadline_s=2.0, choices=2)
    message = encoded(options, arrived_s=40.0, committed=committed, ended=ended)
    other = make_cache().factory.open(message, 50.0)[-1]
    assert has_begun(other) == begun
    assert other.times.expires_s == 42.0


def test_a_prompt_that_is_read_again_after_a_crash_counts_once() -> None:
    cache = make_cache()
    message = encoded(Options(sampling=Sampling()), committed=((7,),))
    (again,) = cache.factory.open(message, 50.0)
    cache.scheduler.submit(again)
    assert cache.scheduler.plan() is not None
    stats = cache.scheduler.stats
    assert (stats.prompt_tokens, stats.recomputed_tokens) == (0, len(again.tokens))


def test_a_request_has_the_servers_promise_unless_it_has_its_own() -> None:
    cache = make_cache(clock=lambda: 50.0)
    server = Slo(ttft=1.0, tpot=0.05)
    cache.factory.limits = RoundLimits(slo=server)
    own = Slo(tpot=0.01)
    for given, wanted in ((None, server), (own, own), (NO_SLO, NO_SLO)):
        assert sequence(cache, Options(sampling=Sampling(), slo=given)).times.slo == wanted


def sequence(cache: Cache, options: Options, **how: object) -> Sequence:
    return cache.factory.open(encoded(options, **how), cache.clock())[0]


def test_a_request_keeps_its_time_over_a_crash() -> None:
    submit = Submit(request_id="r", prompt=(1,), options=HURRIED, arrived_s=40.0)
    entry = Entry(submit, Line())  # type: ignore[arg-type]
    assert entry.resubmission().arrived_s == 40.0


@pytest.mark.parametrize("kind", ["deadline_exceeded", "slo_unmet"])
def test_the_actors_are_told_to_forget_a_request_that_was_not_served(kind: str) -> None:
    desk = Desk()
    entry = desk.open("r")
    desk.ledger.deliver(Failed(request_id="r", kind=kind, reason="late"))
    assert entry.over
    assert isinstance(desk.sent[-1], Cancel)
