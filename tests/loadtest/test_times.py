"""Against a server with known delays, on virtual time: every time and rate is right.

The server's own record is the truth.
"""

from statistics import median

from draftwerk_tools.loadtest.results.result import Run
from tests.loadtest.helpers import off_by, virtual_stub
from tests.loadtest.stub import Manner, Served, Stub

RIGHT = 0.001


def firsts(served: list[Served]) -> list[float]:
    return [one.written_s[0] - one.received_s for one in served]


def milliseconds(run: Run, name: str) -> float:
    found = getattr(run.summary.latencies, name)
    assert found is not None
    return found.at["p50"] / 1000


def served_s(server: Stub) -> float:
    ends = [one.ended_s for one in server.served if one.ended_s is not None]
    return max(ends) - min(one.received_s for one in server.served)


def test_latencies_and_rates_agree_with_the_servers_own_record() -> None:
    with virtual_stub(Manner(first_s=0.4, gap_s=0.1, chunks=5)) as server:
        run = server.measure(concurrency=4, requests=12, max_tokens=5)
    ends = [(one.ended_s or 0.0) - one.received_s for one in server.served]
    spans = [one.written_s[-1] - one.written_s[0] for one in server.served]
    assert off_by(milliseconds(run, "ttft"), median(firsts(server.served))) < RIGHT
    assert off_by(milliseconds(run, "ttft_service"), median(firsts(server.served))) < RIGHT
    assert off_by(milliseconds(run, "e2e"), median(ends)) < RIGHT
    assert off_by(milliseconds(run, "tpot"), median(spans) / 4) < RIGHT
    assert off_by(milliseconds(run, "gap"), median(spans) / 4) < RIGHT
    flow = run.summary.throughput
    assert off_by(flow.requests_per_s, 12 / served_s(server)) < RIGHT
    assert off_by(flow.output_tokens_per_s, 60 / served_s(server)) < RIGHT
    assert off_by(flow.prompt_tokens_per_s, 120 / served_s(server)) < RIGHT
    assert run.summary.output_tokens == 60
    assert run.summary.cached_tokens == 48


def test_time_per_token_divides_by_tokens_and_the_gap_does_not() -> None:
    with virtual_stub(Manner(first_s=0.2, gap_s=0.3, chunks=4, tokens_per_chunk=3)) as server:
        run = server.measure(requests=3, continuous_usage=True)
    spans = [one.written_s[-1] - one.written_s[0] for one in server.served]
    assert run.rows[0].chunk_tokens == [3, 6, 9, 12]
    assert off_by(milliseconds(run, "tpot"), median(spans) / 9) < RIGHT
    assert off_by(milliseconds(run, "gap"), median(spans) / 3) < RIGHT


def test_an_open_loop_offers_the_rate_it_drew() -> None:
    with virtual_stub(Manner(first_s=0.2, gap_s=0.05, chunks=2)) as server:
        run = server.measure(rate="12", burstiness=float("inf"), requests=24)
    received = sorted(one.received_s for one in server.served)
    assert off_by(run.summary.throughput.offered_per_s, 12) < RIGHT
    assert off_by(23 / (received[-1] - received[0]), 12) < RIGHT


def test_a_stall_counts_from_the_scheduled_time_not_from_sending() -> None:
    with virtual_stub(Manner(first_s=0.05, gap_s=0.01, chunks=2)) as server:

        def stall() -> None:
            server.stalled_until_s = server.loop.time() + 1.5

        server.loop.call_later(0.6, stall)
        run = server.measure(rate="8", burstiness=float("inf"), requests=16, in_flight_max=1)
    # One request waits inside the server; the ones behind it wait at the client.
    held = [row for row in run.rows if row.lateness_s > 0.3]
    assert len(held) >= 4
    assert all(row.e2e_s() > 0.3 for row in held)
    slow_in_service = [row for row in run.rows if row.e2e_s(scheduled=False) > 0.3]
    assert len(slow_in_service) == 1
    assert milliseconds(run, "e2e") > 2 * milliseconds(run, "e2e_service")
    assert any("sent late" in line for line in run.warnings)


def test_warm_up_is_counted_but_not_measured() -> None:
    with virtual_stub(Manner(first_s=0.05, gap_s=0.01, chunks=2)) as server:
        run = server.measure(requests=8, warmup=3)
    assert run.summary.warmup == 3
    assert run.summary.outcomes == {"ok": 5}
    assert len(server.served) == len(run.rows) == 8


def test_websocket_times_agree_with_the_servers_own_record() -> None:
    with virtual_stub(Manner(first_s=0.3, gap_s=0.1, chunks=4, tokens_per_chunk=2)) as server:
        run = server.measure(endpoint="responses", transport="ws", concurrency=2, requests=6)
    spans = [one.written_s[-1] - one.written_s[0] for one in server.served]
    assert run.summary.outcomes == {"ok": 6}
    assert off_by(milliseconds(run, "ttft_service"), median(firsts(server.served))) < RIGHT
    assert off_by(milliseconds(run, "tpot"), median(spans) / 6) < RIGHT
    assert server.served[0].body["type"] == "response.create"


def test_whole_replies_have_an_end_but_no_first_token() -> None:
    with virtual_stub(Manner(first_s=0.3, gap_s=0.0, chunks=4)) as server:
        run = server.measure(transport="json", requests=3)
    ends = [(one.ended_s or 0.0) - one.received_s for one in server.served]
    assert run.summary.latencies.ttft is None
    assert off_by(milliseconds(run, "e2e"), median(ends)) < RIGHT
    assert run.summary.output_tokens == 12
