"""The plots of one run."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.report.chart import Chart, Points, Series
from draftwerk_tools.loadtest.results.result import Run

DOTS_MAX = 1500
CURVE_MAX = 300
BINS = 60
GREY = "#94a3b8"
LATENCIES: dict[str, Callable[..., float | None]] = {
    "Time to first token": RequestRow.ttft_s,
    "End-to-end latency": RequestRow.e2e_s,
}


def run_charts(run: Run) -> list[Chart]:
    """Return every plot that the run has data for."""
    good = [row for row in run.rows if row.ok]
    charts = [*_over_time(run, good), *_curves(good), *_flow(run), *_server(run), *_drafting(run)]
    return [chart for chart in charts if any(series.points for series in chart.series)]


def thinned(points: Points, most: int) -> Points:
    """Keep at most so many points, the highest of each stretch, so that spikes survive."""
    if len(points) <= most:
        return points
    size = -(-len(points) // most)
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    return [max(stretch, key=lambda point: point[1]) for stretch in stretches]


def cumulative(values: Sequence[float]) -> Points:
    """Return the share of values at or below each, as a curve of bounded size."""
    ordered = sorted(values)
    count = len(ordered)
    wanted = sorted({round(i * (count - 1) / CURVE_MAX) for i in range(CURVE_MAX + 1)})
    return [(ordered[i], 100 * (i + 1) / count) for i in wanted] if ordered else []


def _over_time(run: Run, good: Sequence[RequestRow]) -> Iterator[Chart]:
    window = run.summary.window
    band = (window.start_s, window.end_s) if window else None
    for name, latency in LATENCIES.items():
        yield Chart(
            title=name,
            note="A dot is a request, at its scheduled time; the steady window is shaded.",
            x_label="scheduled at, s",
            y_label="ms",
            band=band,
            series=[
                Series(
                    "from sending", _dots(good, partial(latency, scheduled=False)), "dots", GREY
                ),
                Series("from the scheduled time", _dots(good, latency), "dots"),
            ],
        )


def _dots(rows: Sequence[RequestRow], value: Callable[[RequestRow], float | None]) -> Points:
    found = ((row.scheduled_s, value(row)) for row in rows)
    return thinned([(at, 1000 * seconds) for at, seconds in found if seconds is not None], DOTS_MAX)


def _curves(good: Sequence[RequestRow]) -> Iterator[Chart]:
    measured = [row for row in good if not row.warmup]
    gaps = [1000 * gap for row in measured for gap in row.gaps_s()]
    yield Chart(
        title="How many are at least this fast",
        x_label="ms, log scale",
        y_label="% of requests",
        log_x=True,
        series=[
            Series("TTFT", _cumulative(measured, RequestRow.ttft_s)),
            Series("E2E", _cumulative(measured, RequestRow.e2e_s)),
        ],
    )
    yield Chart(
        title="Time per token and time between chunks",
        note="They differ when a chunk carries several tokens, as with speculation.",
        x_label="ms, log scale",
        y_label="% of requests, of gaps",
        log_x=True,
        series=[
            Series("TPOT, per request", _cumulative(measured, RequestRow.tpot_s)),
            Series("between chunks, every gap", cumulative([gap for gap in gaps if gap > 0])),
        ],
    )


def _cumulative(rows: Sequence[RequestRow], value: Callable[[RequestRow], float | None]) -> Points:
    found = (value(row) for row in rows)
    return cumulative([1000 * seconds for seconds in found if seconds])


def _flow(run: Run) -> Iterator[Chart]:
    rows = run.rows
    end_s = max((row.ended_s for row in rows), default=0.0)
    if end_s <= 0:
        return
    changes = [(row.sent_s, 1) for row in rows] + [(row.ended_s, -1) for row in rows]
    window = run.summary.window
    band = (window.start_s, window.end_s) if window else None
    yield Chart(
        title="Requests in flight",
        x_label="s",
        y_label="requests",
        band=band,
        series=[Series("in flight", thinned(_running(changes), CURVE_MAX * 2), "steps")],
    )
    yield Chart(
        title="Output tokens per second",
        x_label="s",
        y_label="tokens/s",
        band=band,
        series=[Series("tokens/s", _token_rate(rows, end_s), "steps")],
    )
    yield Chart(
        title="Requests due and ended",
        note="Two lines that part mean a queue that grows.",
        x_label="s",
        y_label="requests so far",
        series=[
            Series("due", _so_far([row.scheduled_s for row in rows]), "steps"),
            Series("ended", _so_far([row.ended_s for row in rows]), "steps"),
        ],
    )


def _running(changes: Sequence[tuple[float, int]]) -> Points:
    level = 0
    points: list[tuple[float, float]] = []
    for at_s, change in sorted(changes):
        level += change
        points.append((at_s, level))
    return points


def _so_far(times: Sequence[float]) -> Points:
    return thinned([(at, n + 1.0) for n, at in enumerate(sorted(times))], CURVE_MAX * 2)


def _token_rate(rows: Sequence[RequestRow], end_s: float) -> Points:
    """Count tokens by time bin, each chunk standing for its share of the answer."""
    width = end_s / BINS
    bins = [0.0] * BINS
    for row in rows:
        each = (row.output_tokens or row.chunks) / row.chunks if row.chunks else 0.0
        for at_s in row.chunk_s:
            bins[min(int(at_s / width), BINS - 1)] += each
    return [(index * width, count / width) for index, count in enumerate(bins)] if any(bins) else []


def _server(run: Run) -> Iterator[Chart]:
    gauges = run.server.gauges if run.server else {}
    queues = [
        Series(name, gauges[name], "steps") for name in ("running", "waiting") if name in gauges
    ]
    if queues:
        yield Chart(
            title="The server's own count",
            x_label="s",
            y_label="requests",
            series=queues,
        )
    if "kv_usage" in gauges:
        points = [(at, 100 * value) for at, value in gauges["kv_usage"]]
        yield Chart(
            title="Cache in use",
            x_label="s",
            y_label="% of KV memory",
            series=[Series("KV cache", points, "steps")],
        )


def _drafting(run: Run) -> Iterator[Chart]:
    drafted = run.summary.speculation
    if drafted and drafted.histogram:
        steps = sum(drafted.histogram) or 1
        bars = [(float(j), 100 * count / steps) for j, count in enumerate(drafted.histogram)]
        yield Chart(
            title="Drafted tokens accepted per step",
            x_label="accepted tokens",
            y_label="% of steps",
            series=[Series("steps", bars, "bars")],
        )
