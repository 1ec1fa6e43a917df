"""Numbers from rows whose times are known exactly."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk_tools.loadtest.measure.advice import advice
from draftwerk_tools.loadtest.measure.client_health import ClientHealth
from draftwerk_tools.loadtest.measure.knee import Point, knee
from draftwerk_tools.loadtest.measure.proportion import wilson
from draftwerk_tools.loadtest.measure.quantiles import quantile, quantiles
from draftwerk_tools.loadtest.measure.search import Bounds, Trial, highest, next_load
from draftwerk_tools.loadtest.measure.server_metrics import read_pages
from draftwerk_tools.loadtest.measure.slo import goodput, meets, parse_slo
from draftwerk_tools.loadtest.measure.summary import summarise
from draftwerk_tools.loadtest.measure.window import Window, tokens_within
from tests.loadtest.helpers import row

HEALTHY = ClientHealth(ticks=100, lag_p50_ms=0, lag_p99_ms=1, lag_max_ms=2, cpu_share=0.1)


def test_a_summary_of_known_times_is_exact() -> None:
    rows = [row(session=n, scheduled_s=n * 0.5, sent_s=n * 0.5 + 0.1) for n in range(10)]
    summary = summarise(rows, [parse_slo("ttft=600ms")], offered=True)
    at, flow = summary.latencies, summary.throughput
    assert at.ttft and at.ttft.at["p50"] == pytest.approx(600)
    assert at.ttft_service and at.ttft_service.at["p50"] == pytest.approx(500)
    assert at.tpot and at.tpot.at["p50"] == pytest.approx(100)
    assert at.gap and at.gap.n == 90 and at.gap.mean == pytest.approx(100)
    assert at.e2e and at.e2e.max == pytest.approx(1500)
    assert at.lateness and at.lateness.mean == pytest.approx(100)
    assert flow.elapsed_s == pytest.approx(6.0)
    assert flow.offered_per_s == pytest.approx(2.0)
    assert flow.requests_per_s == pytest.approx(10 / 6, abs=1e-3)
    assert flow.output_tokens_per_s == pytest.approx(100 / 6, abs=1e-3)
    # Ends at 1.5, 2.0, … 4.5 s lie in the window from 0 to 4.5 s.
    assert flow.steady_requests_per_s == pytest.approx(7 / 4.5, abs=1e-3)


def test_the_first_chunks_tokens_are_not_divided_over_the_rest() -> None:
    several = row(chunk_s=[1.0, 2.0, 3.0], chunk_tokens=[4, 7, 10], output_tokens=10)
    assert several.tpot_s() == pytest.approx(2 / 6)
    assert row(chunk_s=[1.0], output_tokens=5).tpot_s() is None


def test_a_chunk_without_a_count_has_the_mean_of_all() -> None:
    """Five tokens a chunk take 0.2 s each, whether or not the server counts them."""
    assert row(chunk_s=[1.0, 2.0, 3.0], output_tokens=15).tpot_s() == pytest.approx(0.2)
    counted = row(chunk_s=[1.0, 2.0, 3.0], chunk_tokens=[5, 10, 15], output_tokens=15)
    assert counted.tpot_s() == pytest.approx(0.2)
    assert row(chunk_s=[1.0, 2.0, 3.0], output_tokens=3).tpot_s() == pytest.approx(1.0)


def test_tokens_count_where_they_arrived() -> None:
    counted = row(chunk_s=[1.0, 2.0, 3.0, 4.0], chunk_tokens=[1, 3, 6, 10], output_tokens=10)
    assert tokens_within(counted, Window(1.5, 3.5)) == 5
    spread = row(chunk_s=[1.0, 2.0, 3.0, 4.0], output_tokens=10)
    assert tokens_within(spread, Window(1.5, 3.5)) == 5.0
    assert tokens_within(spread, Window(5.0, 6.0)) == 0.0


def test_warm_up_failures_and_hang_ups_are_kept_apart() -> None:
    rows = [
        row(warmup=True),
        row(scheduled_s=1.0),
        row(scheduled_s=2.0, outcome="error", error="timeout", chunk_s=[]),
        row(scheduled_s=3.0, outcome="refused", error="HTTP 503", chunk_s=[]),
        row(scheduled_s=4.0, outcome="cancelled"),
    ]
    summary = summarise(rows, [parse_slo("e2e=2s")], offered=False)
    assert summary.outcomes == {"ok": 1, "error": 1, "refused": 1, "cancelled": 1}
    assert summary.errors == {"timeout": 1, "HTTP 503": 1}
    assert summary.goodput and (summary.goodput.share.met, summary.goodput.share.n) == (1, 3)
    assert summary.latencies.e2e and summary.latencies.e2e.n == 1


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        ("ttft=500ms", True),
        ("ttft=0.49s", False),
        ("tpot<100.1ms", True),
        ("tpot=99ms", False),
        ("e2e=1.4", True),
        ("gap=50ms", False),
    ],
)
def test_limits_are_kept_or_not(slo: str, met: bool) -> None:
    assert meets(row(), [parse_slo(slo)]) is met


@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e", "gap"])
def test_a_reply_without_a_text_keeps_nothing(metric: str) -> None:
    assert not meets(row(chunk_s=[], output_tokens=0), [parse_slo(f"{metric}=10s")])


@pytest.mark.parametrize(
    ("slo", "met"), [("tpot=1ms", True), ("gap=1ms", True), ("ttft=1s", False)]
)
def test_a_text_of_one_token_has_no_time_between_two(slo: str, met: bool) -> None:
    assert meets(row(chunk_s=[1.5], output_tokens=1), [parse_slo(slo)]) is met


def test_every_limit_must_be_kept() -> None:
    slos = [parse_slo("ttft=1s"), parse_slo("tpot=1ms")]
    assert goodput([row(), row()], slos, 2.0).share.met == 0


@pytest.mark.parametrize("text", ["ttft", "speed=3ms", "e2e=fast", "e2e=1h"])
def test_limits_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no SLO"):
        parse_slo(text)


def test_quantiles_interpolate_and_mark_too_few_values() -> None:
    found = quantiles([float(n) for n in range(101)])
    assert found is not None
    assert found.at == pytest.approx({"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p99.9": 99.9})
    assert found.thin == ["p99", "p99.9"]
    enough = quantiles([1.0] * 500)
    assert enough is not None and enough.thin == ["p99.9"]
    assert quantiles([None, None]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_within_the_values_and_never_falls(
    values: list[float], level: float
) -> None:
    ordered = sorted(values)
    found = quantile(ordered, level)
    slack = 1e-9 * max(map(abs, ordered))
    assert ordered[0] - slack <= found <= ordered[-1] + slack
    assert found <= quantile(ordered, min(1.0, level + 0.1)) + slack


def edge(share: float, n: int, inside: float, outside: float) -> float:
    """Bisect for the proportion at which the share seen is just 1.96 deviations away."""
    for _ in range(60):
        middle = (inside + outside) / 2
        near = abs(share - middle) <= 1.959964 * math.sqrt(middle * (1 - middle) / n)
        inside, outside = (middle, outside) if near else (inside, middle)
    return inside


@pytest.mark.parametrize(("met", "n"), [(0, 10), (5, 10), (10, 10), (95, 100), (1, 3)])
def test_wilson_ends_where_the_share_seen_becomes_unlikely(met: int, n: int) -> None:
    found = wilson(met, n)
    share = met / n
    assert found.low == pytest.approx(edge(share, n, share, 0.0), abs=1e-6)
    assert found.high == pytest.approx(edge(share, n, share, 1.0), abs=1e-6)
    assert wilson(0, 0).high == 1.0


def test_wilson_covers_the_truth_about_as_often_as_its_level() -> None:
    rng = Random(1)
    draws = [wilson(sum(rng.random() < 0.9 for _ in range(60)), 60) for _ in range(2000)]
    covered = sum(found.low <= 0.9 <= found.high for found in draws) / 2000
    assert 0.92 < covered < 0.98


def search_for(capacity: float, bounds: Bounds) -> tuple[float | None, int]:
    trials: list[Trial] = []
    while (load := next_load(trials, bounds)) is not None:
        trials.append(Trial(load, load <= capacity))
        assert len(trials) < 60
    return highest(trials), len(trials)


@given(st.integers(1, 500), st.integers(1, 512))
def test_a_search_over_users_may_start_above_what_holds(capacity: int, low: int) -> None:
    found, _ = search_for(capacity, Bounds(low, 512, 1e-6, whole=True))
    assert found == capacity


@given(st.floats(0.5, 900), st.floats(0.1, 7.9))
def test_a_search_over_rates_comes_as_close_as_asked(capacity: float, low: float) -> None:
    found, tries = search_for(capacity, Bounds(low, 1000, 0.05, whole=False))
    assert found is not None and found <= capacity <= found * 1.05 * (1 + 1e-9)
    assert tries < 25


def test_a_search_gives_up_below_its_bounds_and_stops_above() -> None:
    assert search_for(0.1, Bounds(1, 8, 0.1, whole=True)) == (None, 1)
    assert search_for(0.1, Bounds(6, 8, 0.1, whole=True)) == (None, 3)
    assert search_for(0.1, Bounds(8, 64, 0.1, whole=False)) == (None, 5)
    assert search_for(99, Bounds(1, 8, 0.1, whole=True)) == (8, 4)


def test_the_knee_is_where_throughput_per_latency_peaks() -> None:
    points = [Point(n, min(n, 8) * 10.0, 100.0 if n <= 8 else 100.0 * n / 8) for n in (1, 4, 8, 16)]
    found = knee(points)
    assert found is not None and found.load == 8
    assert knee(points[:2]) is None


def test_unreliable_runs_carry_warnings() -> None:
    rows = [row(session=n, scheduled_s=n / 10, sent_s=n / 10 + 0.2) for n in range(20)]
    rows += [row(session=20, scheduled_s=2.0, outcome="error", error="timeout")]
    summary = summarise(rows, [], offered=True)
    sick = ClientHealth(ticks=100, lag_p50_ms=1, lag_p99_ms=50, lag_max_ms=90, cpu_share=0.95)
    text = "\n".join(advice(rows, summary, sick))
    for doubt in ("sent late", "loop lagged", "of a core", "timeout", "too few"):
        assert doubt in text
    assert "loop lagged" not in "\n".join(advice(rows, summary, HEALTHY))


def test_a_server_that_falls_behind_is_noticed() -> None:
    rows = [row(session=n, scheduled_s=n / 10, chunk_s=[n * 1.0 + 1]) for n in range(30)]
    text = "\n".join(advice(rows, summarise(rows, [], offered=True), HEALTHY))
    assert "did not keep up" in text


def test_metrics_pages_give_series_and_growth() -> None:
    pages = [
        (
            float(n),
            "# TYPE vllm:num_requests_waiting gauge\n"
            f"vllm:num_requests_waiting {n}\n"
            "# TYPE tokens_total counter\n"
            f"tokens_total {10 * n}\n"
            "# TYPE process_cpu_seconds_total counter\n"
            f"process_cpu_seconds_total {n}\n",
        )
        for n in range(3)
    ]
    found = read_pages(pages)
    assert found is not None
    assert found.gauges == {"waiting": [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]}
    assert found.growth == {"tokens_total": 20.0}
    assert read_pages([]) is None
    assert read_pages([(0.0, "<html>{}")]) is None


def test_a_bad_histogram_is_called_out() -> None:
    rows = [row(session=n, scheduled_s=float(n), spec_adds_up=n > 0) for n in range(3)]
    text = "\n".join(advice(rows, summarise(rows, [], offered=False), HEALTHY))
    assert "histograms disagree" in text
