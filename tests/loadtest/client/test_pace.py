"""An open loop waits for nobody; a closed one has as many sessions as users."""

import asyncio

from draftwerk_tools.loadtest.client.clock import clock_from_now
from draftwerk_tools.loadtest.client.pace import closed_loop, open_loop, think_time
from draftwerk_tools.loadtest.schedule.plan import Planned
from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt


class Sessions:
    """Counts how many run at once."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0

    async def run(self, planned: Planned, due_s: float) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        self.done += 1


def planned(count: int) -> list[Planned]:
    return [Planned(index, 0.0, WorkloadPrompt(turns=("a",))) for index in range(count)]


def test_all_that_are_due_run_at_once_unless_there_is_a_limit() -> None:
    for limit, most in ((None, 6), (2, 2)):
        sessions = Sessions()
        asyncio.run(open_loop(planned(6), sessions.run, clock_from_now(), limit))
        assert (sessions.done, sessions.most) == (6, most)


def test_users_take_one_session_after_another() -> None:
    sessions = Sessions()
    asyncio.run(closed_loop(iter(planned(7)), sessions.run, clock_from_now(), users=3))
    assert (sessions.done, sessions.most) == (7, 3)


def test_pauses_belong_to_their_place() -> None:
    assert think_time(0, 1, 2) == 0.0
    assert think_time(2.0, 1, 2, 3) == think_time(2.0, 1, 2, 3) != think_time(2.0, 1, 2, 4)
