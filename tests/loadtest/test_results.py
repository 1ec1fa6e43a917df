"""Results are kept whole, compared fairly and drawn."""

import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from draftwerk_tools.loadtest.measure.client_health import ClientHealth
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.measure.server_metrics import ServerMetrics
from draftwerk_tools.loadtest.measure.slo import parse_slo
from draftwerk_tools.loadtest.measure.summary import summarise
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.report.axis import linear, log_ticks, logarithmic, short, ticks
from draftwerk_tools.loadtest.report.page import result_page
from draftwerk_tools.loadtest.report.run_charts import run_charts
from draftwerk_tools.loadtest.report.sweep_charts import sweep_charts
from draftwerk_tools.loadtest.results.comparison import compare_runs, comparison_text, same_texts
from draftwerk_tools.loadtest.results.curves import knees
from draftwerk_tools.loadtest.results.environment import environment
from draftwerk_tools.loadtest.results.result import Run, Sweep, read_result, write_result
from draftwerk_tools.loadtest.results.table import run_text, sweep_text, write_csv
from tests.loadtest.helpers import row

HEALTH = ClientHealth(ticks=100, lag_p50_ms=0, lag_p99_ms=1, lag_max_ms=2, cpu_share=0.1)


def run_of(rows: list[RequestRow], **fields: object) -> Run:
    made = Run(
        environment=environment(["run", "<url>"]),
        options=LoadTestOptions(label="a <b> & c"),
        health=HEALTH,
        summary=summarise(rows, [parse_slo("e2e=2s")], offered=True),
        server=ServerMetrics({"running": [(0.0, 1.0), (1.0, 2.0)]}, {"x_total": 3.0}),
        rows=rows,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def rows_of(slower: float = 1.0, count: int = 30) -> list[RequestRow]:
    return [
        row(
            session=n,
            scheduled_s=n * 0.2,
            category="math" if n % 2 else "<prose>",
            chunk_s=[n * 0.2 + slower * (0.5 + n % 7 / 50 + 0.1 * k) for k in range(10)],
            spec_steps=5,
            spec_accepted=5,
            spec_drafted=10,
            spec_histogram=[1, 3, 1],
            text_hash=str(n % 10 if slower > 1 else n),
        )
        for n in range(count)
    ]


def sweep_of() -> Sweep:
    runs = [
        run_of(rows_of(1.0 + load / 10 * (name == "slow")), label=name, load=float(load))
        for name in ("fast", "slow")
        for load in (1, 4, 16)
    ]
    return Sweep(
        environment=environment([]),
        over="concurrency",
        runs=runs,
        knees=knees(runs),
        notes=["a <note>"],
    )


@pytest.mark.parametrize("result", [run_of(rows_of()), sweep_of()], ids=["run", "sweep"])
def test_a_result_survives_its_file(result: Run | Sweep, tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    write_result(path, result)
    assert read_result(path) == result


def test_other_files_and_other_schemas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a loadtest result"):
        read_result(path)
    write_result(path, run_of(rows_of(), schema_version=99))
    with pytest.raises(ValueError, match="schema 99"):
        read_result(path)


def svgs(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.S)]


@pytest.mark.parametrize("result", [run_of(rows_of()), sweep_of()], ids=["run", "sweep"])
def test_a_page_is_whole_escaped_and_self_contained(result: Run | Sweep) -> None:
    page = result_page(result)
    assert len(svgs(page)) >= 6
    assert "<prose>" not in page and "<note>" not in page and "<url>" not in page
    for outside in ("http:", "https:", "<script", "<link", "@import", "nan", "url("):
        assert outside not in page.replace("http://127.0.0.1", "")
    for drawing in svgs(page):
        labels = [text.text for text in drawing.iter("text")]
        assert len(labels) >= 6 and all(labels)


@pytest.mark.parametrize("result", [run_of(rows_of()), sweep_of()], ids=["run", "sweep"])
def test_every_line_of_a_chart_shows_its_values_under_the_pointer(result: Run | Sweep) -> None:
    charts = run_charts(result) if isinstance(result, Run) else sweep_charts(result)
    for chart in charts:
        tips = re.findall(r"<title>(.*?): .*? at .*?</title>", chart.html())
        drawn = {escape(series.name) for series in chart.series if series.points}
        assert set(tips) == drawn, chart.title


def test_the_warnings_of_a_sweep_are_open_to_be_read() -> None:
    sweep = sweep_of()
    sweep.runs[0].warnings = ["the client sent late"]
    page = result_page(sweep)
    folded = "".join(re.findall(r"<details>.*?</details>", page, re.S))
    assert "fast 1: the client sent late" in page and "sent late" not in folded


def test_a_run_in_which_nothing_worked_still_has_a_page() -> None:
    failed = row(outcome="error", error="connect", chunk_s=[])
    for rows in ([failed], []):
        page = result_page(run_of(rows))
        assert "<h1>" in page


def test_a_table_shows_every_latency_and_stars_the_thin_ones() -> None:
    text = run_text(run_of(rows_of()))
    for name in ("TTFT", "TPOT", "inter-chunk", "E2E", "lateness", "goodput", "speculation"):
        assert name in text
    assert re.search(r"TTFT +30 .*\d\*", text)
    assert "knee of fast" in sweep_text(sweep_of())


def test_csv_has_a_line_per_request(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_csv(path, rows_of())
    head, *lines = path.read_text().splitlines()
    assert len(lines) == 30 and head.endswith("ttft_s,tpot_s,e2e_s")


def test_a_clear_change_is_separated_from_chance() -> None:
    before, after = run_of(rows_of()), run_of(rows_of(slower=1.5))
    changes = {change.name: change for change in compare_runs(before, after)}
    assert changes["TPOT p50 ms"].ratio == pytest.approx(1.5)
    assert changes["E2E p50 ms"].clear
    assert not any(change.clear for change in compare_runs(before, before))
    assert "clear" in comparison_text(before, after)


def test_equal_questions_should_have_equal_answers() -> None:
    before, after = run_of(rows_of()), run_of(rows_of(slower=2.0))
    assert same_texts(before, before) == (30, 30)
    assert same_texts(before, after) == (10, 30)
    elsewhere = run_of(rows_of(), options=LoadTestOptions(seed=9))
    assert same_texts(before, elsewhere) == (0, 0)


def test_sweeps_are_compared_where_they_meet() -> None:
    text = comparison_text(sweep_of(), sweep_of())
    assert text.count("requests/s") == 6
    with pytest.raises(ValueError, match="in common"):
        comparison_text(sweep_of(), run_of(rows_of(), label="alone", load=7.0))


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0, 0.07) == pytest.approx([0, 0.02, 0.04, 0.06])
    assert ticks(3, 3) == [3]
    assert log_ticks(10, 1000) == [10, 20, 50, 100, 200, 500, 1000]
    assert [short(v) for v in (0.5, 1500, 25_000, 3e6)] == ["0.5", "1,500", "25k", "3M"]


def test_scales_keep_every_value_on_the_paper() -> None:
    for scale in (linear(0, 87, 300, 10), logarithmic(0.5, 900, 50, 500)):
        ends = sorted((scale.start, scale.stop))
        for value in (-5.0, 0.0, 1.0, 50.0, 1e9):
            assert ends[0] <= scale(max(value, 1e-6)) <= ends[1]


def test_a_run_tells_how_busy_the_device_was() -> None:
    growth = {
        "draftwerk_device_busy_seconds_total{stage=forward}": 8.0,
        "draftwerk_device_busy_seconds_total{stage=head}": 1.0,
        "draftwerk_device_gap_seconds_sum": 1.0,
        "draftwerk_device_gap_seconds_count": 500.0,
    }
    told = run_text(run_of(rows_of(), server=ServerMetrics({}, growth)))
    assert "device       90.0% busy, 2.00 ms between steps" in told
    assert "device " not in run_text(run_of(rows_of(), server=ServerMetrics({}, {"x_total": 1.0})))
    assert "device " not in run_text(run_of(rows_of(), server=None))


def test_a_run_tells_where_the_time_of_its_requests_went() -> None:
    growth = {
        "draftwerk_request_stage_seconds_sum{stage=prefill}": 0.5,
        "draftwerk_request_stage_seconds_count{stage=prefill}": 4.0,
        "draftwerk_request_stage_seconds_sum{stage=decode}": 3.0,
        "draftwerk_request_stage_seconds_count{stage=decode}": 4.0,
        "draftwerk_request_stage_seconds_count{stage=queue}": 4.0,
    }
    told = run_text(run_of(rows_of(), server=ServerMetrics({}, growth)))
    assert "stages, ms   queue 0.0, prefill 125.0, decode 750.0 on average" in told
    assert "stages" not in run_text(run_of(rows_of(), server=ServerMetrics({}, {"x_total": 1.0})))
