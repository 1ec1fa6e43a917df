"""Warnings about a run: what makes its numbers unreliable."""

from collections.abc import Iterator, Sequence

from draftwerk_tools.loadtest.measure.client_health import ClientHealth
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.measure.summary import Summary, failure_lines

LATE_P99_MS = 20.0
LAG_P99_MS = 10.0
CPU_SHARE = 0.8
TICKS_MIN = 50
ERROR_SHARE = 0.01
KEPT_UP = 0.9
REQUESTS_TO_CHECK = 20


def advice(rows: Sequence[RequestRow], summary: Summary, health: ClientHealth) -> list[str]:
    """Return one sentence per doubt."""
    measured = [row for row in rows if not row.warmup]
    return [
        *_client_doubts(summary, health),
        *_load_doubts(measured, summary),
        *_count_doubts([row for row in measured if row.ok], summary),
    ]


def _client_doubts(summary: Summary, health: ClientHealth) -> Iterator[str]:
    late = summary.latencies.lateness
    if late and late.at["p99"] > LATE_P99_MS:
        yield f"the client sent late: p99 {late.at['p99']:.0f} ms, which counts as latency"
    if health.lag_p99_ms > LAG_P99_MS:
        yield (
            f"the client's own loop lagged: p99 {health.lag_p99_ms:.0f} ms, "
            f"max {health.lag_max_ms:.0f} ms; times are that uncertain"
        )
    if health.cpu_share > CPU_SHARE and health.ticks > TICKS_MIN:
        yield f"the client used {health.cpu_share:.0%} of a core and may be the bottleneck"


def _load_doubts(measured: Sequence[RequestRow], summary: Summary) -> Iterator[str]:
    flow = summary.throughput
    failed = sum(row.outcome in ("error", "refused") for row in measured)
    if failed > ERROR_SHARE * len(measured):
        kinds = "; ".join(failure_lines(summary))
        yield f"{failed} of {len(measured)} requests failed ({kinds})"
    resent = sum(row.resent > 0 for row in measured)
    if resent:
        yield (
            f"{resent} requests were sent again: the server had closed the kept connection they "
            "went out on before it answered anything (see --no-keep-alive)"
        )
    if summary.window is None:
        yield "there is no steady window: every request was due at the same time"
    steady, offered = flow.steady_requests_per_s, flow.offered_per_s
    enough = len(measured) >= REQUESTS_TO_CHECK
    if offered and steady is not None and enough and not failed and steady < KEPT_UP * offered:
        yield (
            f"the server did not keep up: {steady:.2f} of {offered:.2f} requests/s; "
            "latency grows with the length of such a run"
        )


def _count_doubts(good: Sequence[RequestRow], summary: Summary) -> Iterator[str]:
    by_chunks = sum(row.counted_by_chunks for row in good)
    if by_chunks:
        yield f"{by_chunks} answers came without usage: one token per chunk was assumed"
    short = sum((row.output_tokens or 0) < row.output_wanted for row in good)
    if short:
        yield f"{short} of {len(good)} answers are shorter than asked for (see --ignore-eos)"
    if not all(row.spec_adds_up for row in good):
        yield "acceptance histograms disagree with the totals sent beside them"
    thin = summary.latencies.ttft or summary.latencies.e2e
    if thin and thin.thin:
        yield f"{thin.n} requests are too few for {', '.join(thin.thin)}"
    if summary.correct and summary.correct.met < summary.correct.n:
        yield f"{summary.correct.n - summary.correct.met} counting answers are wrong"
