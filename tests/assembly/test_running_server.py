"""What the doctor prints of a server that runs already."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from draftwerk.actors.monitoring.device_clock import DeviceClock
from draftwerk.actors.monitoring.request_stages import RequestStages, stage_spans
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.api.shared.config import Settings, load
from draftwerk.assembly import doctor
from draftwerk.assembly.round_limits import MeasuredModel
from draftwerk.assembly.running_server import is_draftwerk, read_times, server_times
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.row_parts.step_report import StepReport

OURS = '{"openapi": "3.1.0", "info": {"title": "draftwerk", "version": "1"}}'


class Counted(Collector):
    """The metrics that the doctor reads, of 99 short waits and a long one."""

    def __init__(self, *, gaps: int = 100) -> None:
        self.clock, self.stages = DeviceClock(), RequestStages()
        for number in range(gaps):
            gap_ms = 0.08 if number else 4.0
            report = StepReport(forward_ms=9.0, sample_ms=1.0, gap_ms=gap_ms)
            self.clock.observe(number, report, Trace())
        times = StageTimes(0.0, 0.001, 0.002, 0.004, 0.007, 0.057)
        self.stages.observe(stage_spans(times, 1.057, 1.0575))

    def collect(self) -> Iterator[Metric]:
        busy = CounterMetricFamily("draftwerk_device_busy_seconds", "", labels=["stage"])
        for stage, seconds in self.clock.busy_s.items():
            busy.add_metric([stage], seconds)
        yield busy
        gaps = self.clock.gaps
        yield HistogramMetricFamily(
            "draftwerk_device_gap_seconds", "", gaps.cumulative(), gaps.total
        )
        stages = HistogramMetricFamily("draftwerk_request_stage_seconds", "", labels=["stage"])
        for stage, seconds in self.stages.copy().items():
            stages.add_metric([stage], seconds.cumulative(), seconds.total)
        yield stages


def page(counted: Counted) -> str:
    registry = CollectorRegistry()
    registry.register(counted)
    return generate_latest(registry).decode()


@contextmanager
def server_of(
    text: str, key: str = "", description: tuple[int, str] = (200, OURS)
) -> Iterator[int]:
    """Serve a page of metrics, and a description of the API; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            may = not key or self.headers["Authorization"] == f"Bearer {key}"
            status, body = description if self.path == "/openapi.json" else (200, text)
            self.send_response(status if may else 401)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_page_tells_how_the_device_waits_and_where_requests_are() -> None:
    found = read_times(page(Counted()))
    assert found is not None
    assert found.busy == pytest.approx(1.0 / (1.0 + 0.01192))
    assert found.gap_ms == pytest.approx(0.1192)
    assert (found.gap_p50_ms, found.gap_p99_ms) == (0.1, 0.1)
    assert found.stages_ms == pytest.approx(
        {
            **{"inbox": 1.0, "tokenise": 1.0, "queue": 2.0, "device_wait": 3.0},
            **{"prefill": 50.0, "decode": 1000.0, "detokenise": 0.5},
        }
    )


def no_model(settings: Settings) -> MeasuredModel:
    raise AssertionError("a second model beside the server's")


def test_the_doctor_prints_it_of_the_server_at_its_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with server_of(page(Counted()), key="secret") as port:
        settings = load({"port": port, "api_key": ["ann:secret"]}, {})
        doctor.doctor(settings, lambda: "avx2", measure=no_model)
    printed = capsys.readouterr().out
    assert f"[  ok  ] 127.0.0.1:{port}: in use by draftwerk" in printed
    assert "its device: 98.8% busy while there was work; 0.12 ms between two steps" in printed
    assert "queue 2.0, device_wait 3.0, prefill 50.0, decode 1000.0, detokenise 0.5" in printed


NO_BUCKETS = "draftwerk_device_busy_seconds_total 1\ndraftwerk_device_gap_seconds_count 3\n"


@pytest.mark.parametrize(
    "text", ["", "other_total 1.0\n", "not a page {", page(Counted(gaps=0)), NO_BUCKETS]
)
def test_another_programs_page_and_one_without_steps_tell_nothing(text: str) -> None:
    with server_of(text) as port:
        assert server_times(load({"port": port}, {})) is None


STARTING = '{"error": {"message": "The server is starting.", "code": "starting", "param": null}}'


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (200, OURS, True),
        (503, STARTING, True),
        (503, '{"error": {"code": "overloaded"}}', False),
        (200, '{"info": {"title": "another"}}', False),
        (200, '{"info": 3}', False),
        (200, "[1", False),
        (404, "no such page", False),
        (200, "\udcff".encode(errors="surrogateescape").decode("latin-1"), False),
    ],
)
def test_a_server_of_ours_is_told_from_others(status: int, text: str, expected: bool) -> None:
    with server_of("", description=(status, text)) as port:
        assert is_draftwerk(load({"port": port}, {})) is expected


def test_nobody_is_at_a_free_port() -> None:
    with server_of("") as port:
        pass
    assert not is_draftwerk(load({"port": port}, {}))
    assert not is_draftwerk(load({"port": 0}, {}))
