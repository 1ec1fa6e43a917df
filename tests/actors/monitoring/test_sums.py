"""Counters of several engines added; what is no counter is of the one that serves."""

import pytest

from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures, Snapshot
from draftwerk.actors.monitoring.sums import counted
from draftwerk.speculative.load.stats import SchedulerLoad, SchedulerStats

pytestmark = pytest.mark.fast


def test_counters_are_added_and_gauges_are_of_now() -> None:
    waits = Histogram((1.0,))
    waits.observe(0.5)
    earlier = Snapshot(
        load=SchedulerLoad(blocks_total=9),
        counts=SchedulerStats(rounds=5, accepted_by_position=[2]),
        actors=ActorFigures(restarts=1, mailbox_waits={"cache": waits}),
        models=ModelFigures(recoveries=2),
        store={"hits": 3.0, "bytes": 100.0, "blocks": 4.0},
    )
    now = Snapshot(
        load=SchedulerLoad(blocks_total=7),
        counts=SchedulerStats(rounds=6, accepted_by_position=[1, 1]),
        actors=ActorFigures(mailbox_depths={"cache": 1}, mailbox_waits={"cache": waits}),
        store={"hits": 1.0, "bytes": 50.0, "blocks": 2.0},
    )
    both = counted([earlier, now], now)
    assert both.load == now.load
    assert both.counts == SchedulerStats(rounds=11, accepted_by_position=[3, 1])
    assert (both.actors.restarts, both.models.recoveries) == (1, 2)
    assert both.actors.mailbox_depths == {"cache": 1}
    assert (both.actors.mailbox_waits["cache"].counts[0], waits.counts[0]) == (2, 1)
    assert both.store == {"hits": 4.0, "bytes": 50.0, "blocks": 2.0}
    assert counted([earlier], Snapshot()).store == {"hits": 3.0, "bytes": 0, "blocks": 0}
