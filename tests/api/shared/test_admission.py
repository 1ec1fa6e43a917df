"""Which request is admitted next: bounded, fair between keys, and none left out."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.api.shared.admission import Admission, Ticket
from draftwerk.api.shared.errors import ApiError
from tests.api.conftest import serving
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until


def admission(places: int = 2, queue: int = 100, clock: Callable[[], float] | None = None):
    return Admission(places, queue, 30.0, clock or (lambda: 0.0))


def serve_next(state: Admission, inside: list[Ticket], cost: float) -> None:
    ticket = inside.pop(0)
    ticket.cost = cost
    state.leave(ticket)


async def test_there_is_no_wait_while_there_is_room() -> None:
    state = admission(places=2)
    async with state.turn("a"), state.turn("a"):
        assert state.places_used == 2
        state.check()
    assert state.places_used == 0


async def test_a_flood_from_one_key_does_not_delay_another() -> None:
    state = admission(places=1)
    tickets = [state.join("flood", 1, 0) for _ in range(50)]
    other = state.join("other", 1, 0)
    tickets[0].cost = 1000
    state.leave(tickets[0])
    assert other.inside
    assert not tickets[1].inside


class Crowd:
    """Tickets of a simulation, and what each key was served."""

    def __init__(self, state: Admission, seed: int = 1) -> None:
        self.state = state
        self.dice = random.Random(seed)
        self.here: list[Ticket] = []
        self.served: Counter[str] = Counter()

    def join(self, tenant: str, count: int) -> None:
        self.here += [self.state.join(tenant, 1, 0) for _ in range(count)]

    def serve(self, count: int, costs: dict[str, int]) -> None:
        """Let `count` requests end, in any order."""
        for _ in range(count):
            ticket = self.dice.choice([each for each in self.here if each.inside])
            self.here.remove(ticket)
            ticket.cost = costs[ticket.tenant]
            self.served[ticket.tenant] += costs[ticket.tenant]
            self.state.leave(ticket)
            self.state.check()


async def test_two_keys_share_by_tokens_and_not_by_requests() -> None:
    crowd = Crowd(admission(places=4, queue=10_000))
    crowd.join("long", 300)
    crowd.join("short", 2000)
    crowd.serve(800, {"long": 1000, "short": 100})
    long, short = crowd.served["long"], crowd.served["short"]
    assert (long + short) ** 2 / (2 * (long**2 + short**2)) > 0.99


async def test_idle_time_earns_no_claim() -> None:
    costs = {"busy": 500, "late": 500}
    crowd = Crowd(admission(places=2))
    crowd.join("busy", 60)
    crowd.serve(20, costs)
    crowd.join("late", 20)
    crowd.served.clear()
    crowd.serve(20, costs)
    assert abs(crowd.served["late"] - crowd.served["busy"]) <= 3 * 500


async def test_more_urgent_requests_of_a_key_come_first() -> None:
    state = admission(places=1)
    first = state.join("a", 1, 0)
    later, urgent = state.join("a", 1, 5), state.join("a", 1, -5)
    state.leave(first)
    assert urgent.inside
    assert not later.inside


async def test_a_wide_request_waits_for_its_places_and_is_not_overtaken() -> None:
    state = admission(places=4)
    inside = [state.join("a", 1, 0) for _ in range(3)]
    wide = state.join("a", 4, 0)
    behind = state.join("a", 1, 0)
    assert not wide.inside
    assert not behind.inside
    for ticket in inside:
        state.leave(ticket)
    assert wide.inside
    assert not behind.inside
    with pytest.raises(ApiError):
        state.join("a", 5, 0)


async def test_a_full_queue_refuses_with_the_measured_delay() -> None:
    clock = [0.0]
    state = admission(places=1, queue=2, clock=lambda: clock[0])
    inside = [state.join("a", 1, 0)]
    for _ in range(10):
        clock[0] += 2.0
        inside.append(state.join("a", 1, 0))
        serve_next(state, inside, 1)
    state.join("a", 1, 0)
    state.join("a", 1, 0)
    with pytest.raises(ApiError) as refusal:
        state.join("a", 1, 0)
    assert refusal.value.status == 503
    assert refusal.value.retry_after_ms == pytest.approx(3 * 1800)


async def test_a_wait_that_would_be_too_long_is_refused_before_the_queue_is_full() -> None:
    clock = [0.0]
    state = admission(places=1, queue=1000, clock=lambda: clock[0])
    inside = [state.join("a", 1, 0)]
    for _ in range(10):
        clock[0] += 10.0
        inside.append(state.join("a", 1, 0))
        serve_next(state, inside, 1)
    for _ in range(3):
        state.join("a", 1, 0)
    with pytest.raises(ApiError):
        state.join("a", 1, 0)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_places_balance_whatever_happens(seed: int) -> None:
    async def run() -> None:
        dice = random.Random(seed)
        state = admission(places=3, queue=6)

        async def client() -> None:
            try:
                async with state.turn(dice.choice("abc"), dice.randrange(1, 4), dice.randrange(3)):
                    state.check()
                    await asyncio.sleep(dice.random() / 1000)
            except ApiError:
                pass

        tasks = [asyncio.create_task(client()) for _ in range(30)]
        for task in tasks:
            if dice.random() < 0.4:
                await asyncio.sleep(dice.random() / 1000)
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        state.check()
        assert (state.places_used, state.waiting) == (0, 0)

    asyncio.run(run())


async def test_over_http_the_queue_waits_and_then_refuses() -> None:
    async with serving(FakeEngine(), requests_max=1, queue_max=1) as served:
        first = asyncio.create_task(served.chat("!held"))
        await until(lambda: served.engine.live == 1)
        second = asyncio.create_task(served.chat("hello"))
        await until(lambda: served.state.admission.waiting == 1)
        refusal = await served.chat("late")
        assert refusal.status_code == 503
        assert int(refusal.headers["retry-after-ms"]) > 0
        assert (await served.http.get("/ready")).status_code == 503
        await asyncio.sleep(0.06)  # what the second waits at least
        served.engine.released.set()
        assert (await first).status_code == 200
        reply = await second
        assert reply.status_code == 200
        assert reply.json()["metrics"]["queue_time_ms"] > 50
        assert served.state.outcomes["overloaded"] == 1
