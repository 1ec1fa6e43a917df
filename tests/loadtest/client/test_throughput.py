"""The classic recipe: when it stops, and that everybody asks alike; the parts of a latency."""

import msgspec
import pytest

from draftwerk_tools.loadtest.client.http.body import BodyMaker
from draftwerk_tools.loadtest.client.throughput import everybody
from draftwerk_tools.loadtest.measure.knee import still_rises
from draftwerk_tools.loadtest.measure.summary import summarise
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.workloads.catalogue import open_workload
from tests.loadtest.helpers import row


@pytest.mark.parametrize(
    ("rates", "rises"),
    [([10], True), ([10, 19], True), ([10, 19, 19.5], False), ([10, 19, 12], False)],
)
def test_users_are_doubled_while_that_gains(rates: list[float], rises: bool) -> None:
    assert still_rises(rates, 0.05) is rises


def test_everybody_asks_the_same_at_once_and_nothing_is_cached() -> None:
    options = everybody(LoadTestOptions(prompt_spread=0.5, output_spread=0.5, prefix_groups=3), 8)
    assert (options.concurrency, options.requests, options.ignore_eos) == (8, 8, True)
    workload = open_workload(options)
    assert len({workload.prompt(index) for index in range(8)}) == 1
    # A run is isolated from others by a salt of its own: requests still have salts that differ.
    options = msgspec.structs.replace(options, extra='{"cache_salt": "run 3"}')
    bodies = BodyMaker(options, "model")
    sent = [
        msgspec.json.decode(bodies.body(workload.prompt(index), []))
        for index in range(options.requests or 0)
    ]
    assert len({body.pop("cache_salt") for body in sent}) == 8
    assert all(body == sent[0] for body in sent)
    assert BodyMaker(options, "model").body(workload.prompt(0), []) != bodies.body(
        workload.prompt(0), []
    )


def test_first_token_and_time_per_token_make_up_the_whole_latency() -> None:
    times = {"scheduled_s": 1.0, "sent_s": 1.0, "first_s": 1.5, "last_s": 3.5}
    whole, late = (row(**times, ended_s=end, output_tokens=11, chunks=11) for end in (3.5, 4.0))
    assert whole.unexplained_s() == pytest.approx(0.0)
    assert late.unexplained_s() == pytest.approx(0.5)
    assert summarise([whole, late], [], False).unexplained_share == pytest.approx(0.5 / 3, abs=1e-3)
    at_once = row(first_s=1.5, last_s=1.5, output_tokens=4, chunks=1)
    assert at_once.unexplained_s() is None
