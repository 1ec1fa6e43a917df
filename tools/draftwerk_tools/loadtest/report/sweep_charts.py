"""The plots of several runs: curves over load, and the knee."""

from functools import partial

from draftwerk_tools.loadtest.report.chart import PALETTE, Chart, Mark, Series
from draftwerk_tools.loadtest.results.curves import (
    Value,
    curve,
    labels,
    latency,
    over_load,
    tokens_per_s,
)
from draftwerk_tools.loadtest.results.result import Run, Sweep

LOG_FROM = 8


def sweep_charts(sweep: Sweep) -> list[Chart]:
    """Return every plot that the runs have data for."""
    charts = [_trade(sweep), *_over_load(sweep)]
    return [chart for chart in charts if any(series.points for series in chart.series)]


def _trade(sweep: Sweep) -> Chart:
    return Chart(
        title="Latency against throughput",
        note="Each point is a load; the ring is the knee, where throughput per latency is highest.",
        x_label="output tokens/s",
        y_label="E2E p50, ms",
        series=[
            Series(name or "all", [(p.throughput, p.latency) for p in curve(sweep.runs, name)])
            for name in labels(sweep.runs)
        ],
        marks=[
            Mark(point.throughput, point.latency, f"{sweep.over} {point.load:g}")
            for name, load in sweep.knees.items()
            for point in curve(sweep.runs, name)
            if point.load == load
        ],
    )


def _over_load(sweep: Sweep) -> list[Chart]:
    make = partial(_chart, sweep)
    return [
        make("Output tokens per second", "tokens/s", tokens_per_s),
        make("Time to first token, median", "ms", latency("ttft", "p50")),
        make("Time to first token, p99", "ms", latency("ttft", "p99")),
        make("Time per output token, median", "ms", latency("tpot", "p50")),
        make("Requests within the SLOs", "%", _acceptance_rate),
        make("Tokens per decoding step", "1 + accepted drafts", _accepted),
    ]


def _chart(sweep: Sweep, title: str, unit: str, value: Value) -> Chart:
    loads = [run.load or 0.0 for run in sweep.runs]
    wide = min(loads) > 0 and max(loads) / min(loads) >= LOG_FROM
    return Chart(
        title=title,
        x_label=f"{sweep.over}{', requests/s' if sweep.over == 'rate' else ''}",
        y_label=unit,
        log_x=wide,
        x_ticks=sorted(set(loads)) if wide else None,
        series=[
            Series(name or "all", over_load(sweep.runs, name, value), colour=PALETTE[n % 8])
            for n, name in enumerate(labels(sweep.runs))
        ],
    )


def _acceptance_rate(run: Run) -> float | None:
    return 100 * run.summary.goodput.share.share if run.summary.goodput else None


def _accepted(run: Run) -> float | None:
    return run.summary.speculation.accepted_length if run.summary.speculation else None
