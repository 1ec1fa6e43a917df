"""One run in numbers."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain

from msgspec import Struct

from draftwerk_tools.loadtest.measure.proportion import Proportion, wilson
from draftwerk_tools.loadtest.measure.quantiles import Quantiles, quantiles
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.measure.slo import Goodput, Slo, goodput
from draftwerk_tools.loadtest.measure.speculation import SpeculationSummary, speculation
from draftwerk_tools.loadtest.measure.window import Window, ended_per_s, steady_window, tokens_per_s

MS = 1000.0


class Latencies(Struct, frozen=True):
    """All in ms. The plain names count from the scheduled time, `_service` from sending."""

    ttft: Quantiles | None
    ttft_service: Quantiles | None
    tpot: Quantiles | None
    gap: Quantiles | None
    e2e: Quantiles | None
    e2e_service: Quantiles | None
    lateness: Quantiles | None


class Throughput(Struct, frozen=True):
    """Per second: over everything measured, tail included, and in the steady window alone."""

    elapsed_s: float
    offered_per_s: float | None
    requests_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    steady_requests_per_s: float | None
    steady_output_tokens_per_s: float | None


class CategorySummary(Struct, frozen=True):
    n: int
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    accepted_length: float | None


class Summary(Struct, frozen=True, kw_only=True):
    """Counts are of measured requests; warm-up is only counted."""

    warmup: int
    outcomes: dict[str, int]
    errors: dict[str, int]
    """By kind."""
    examples: dict[str, str] = {}
    """The most common message of each kind of error, and the URL it came from."""
    window: Window | None
    throughput: Throughput
    latencies: Latencies
    goodput: Goodput | None = None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    speculation: SpeculationSummary | None
    correct: Proportion | None
    categories: dict[str, CategorySummary]
    unexplained_share: float | None = None
    """Largest part of a request's E2E that TTFT + TPOT x (N - first) leaves out."""


def summarise(rows: Sequence[RequestRow], slos: Sequence[Slo], offered: bool) -> Summary:
    """Turn rows into a summary; `offered` is set if arrivals had times of their own."""
    measured = [row for row in rows if not row.warmup]
    good = [row for row in measured if row.ok]
    flow = _throughput(rows, measured, offered)
    return Summary(
        warmup=len(rows) - len(measured),
        outcomes=dict(Counter(row.outcome for row in measured)),
        errors=dict(Counter(row.error for row in measured if row.error).most_common()),
        examples=_examples(measured),
        window=steady_window(rows),
        throughput=flow,
        latencies=_latencies(measured, good),
        goodput=goodput(measured, slos, flow.elapsed_s) if slos else None,
        prompt_tokens=sum(row.prompt_tokens or 0 for row in good),
        output_tokens=sum(row.output_tokens or 0 for row in good),
        cached_tokens=_cached(good),
        speculation=speculation(good),
        correct=_correct(good),
        categories=_categories(good),
        unexplained_share=_unexplained(good),
    )


def _examples(measured: Sequence[RequestRow]) -> dict[str, str]:
    details = Counter((row.error, row.detail) for row in measured if row.error)
    return {kind: detail for (kind, detail), _ in reversed(details.most_common()) if kind}


def failure_lines(summary: Summary) -> list[str]:
    """Return a line per kind of error: how many, and the message of one."""
    return [
        f"{count} x {kind}: {summary.examples.get(kind) or 'no message'}"
        for kind, count in summary.errors.items()
    ]


def _latencies(measured: Sequence[RequestRow], good: Sequence[RequestRow]) -> Latencies:
    """Latency is of good answers only, lateness of every request that was sent."""
    return Latencies(
        ttft=quantiles((row.ttft_s() for row in good), MS),
        ttft_service=quantiles((row.ttft_s(scheduled=False) for row in good), MS),
        tpot=quantiles((row.tpot_s() for row in good), MS),
        gap=quantiles(chain.from_iterable(row.gaps_s() for row in good), MS),
        e2e=quantiles((row.e2e_s() for row in good), MS),
        e2e_service=quantiles((row.e2e_s(scheduled=False) for row in good), MS),
        lateness=quantiles((row.lateness_s for row in measured), MS),
    )


def _throughput(
    rows: Sequence[RequestRow], measured: Sequence[RequestRow], offered: bool
) -> Throughput:
    good = [row for row in measured if row.ok]
    window = steady_window(rows)
    start_s = min((row.scheduled_s for row in measured), default=0.0)
    elapsed_s = max((row.ended_s for row in measured), default=start_s) - start_s
    sessions = len({row.session for row in measured})
    return Throughput(
        elapsed_s=round(elapsed_s, 4),
        offered_per_s=_rate(sessions - 1, _arrival_span(measured)) if offered else None,
        requests_per_s=_rate(len(good), elapsed_s) or 0.0,
        output_tokens_per_s=_rate(sum(r.output_tokens or 0 for r in good), elapsed_s) or 0.0,
        prompt_tokens_per_s=_rate(sum(r.prompt_tokens or 0 for r in good), elapsed_s) or 0.0,
        steady_requests_per_s=round(ended_per_s(rows, window), 4) if window else None,
        steady_output_tokens_per_s=round(tokens_per_s(rows, window), 4) if window else None,
    )


def _arrival_span(rows: Sequence[RequestRow]) -> float:
    """Return the time from the first arrival to the last: n of them make n - 1 gaps."""
    starts = [row.scheduled_s for row in rows if row.turn == 0]
    return max(starts) - min(starts) if starts else 0.0


def _rate(count: float, elapsed_s: float) -> float | None:
    return round(count / elapsed_s, 4) if elapsed_s > 0 else None


def _cached(good: Sequence[RequestRow]) -> int | None:
    told = [row.cached_tokens for row in good if row.cached_tokens is not None]
    return sum(told) if told else None


def _correct(good: Sequence[RequestRow]) -> Proportion | None:
    checked = [row.correct for row in good if row.correct is not None]
    return wilson(sum(checked), len(checked)) if checked else None


def _unexplained(good: Sequence[RequestRow]) -> float | None:
    shares = [
        abs(left) / row.e2e_s()
        for row in good
        if (left := row.unexplained_s()) is not None and row.e2e_s() > 0
    ]
    return round(max(shares), 4) if shares else None


def _categories(good: Sequence[RequestRow]) -> dict[str, CategorySummary]:
    groups: defaultdict[str, list[RequestRow]] = defaultdict(list)
    for row in good:
        groups[row.category].append(row)
    return {name: _category(groups[name]) for name in sorted(groups)}


def _category(rows: Sequence[RequestRow]) -> CategorySummary:
    drafted = speculation(rows)
    return CategorySummary(
        n=len(rows),
        ttft_p50_ms=_median([row.ttft_s() for row in rows]),
        tpot_p50_ms=_median([row.tpot_s() for row in rows]),
        accepted_length=drafted.accepted_length if drafted else None,
    )


def _median(values: Sequence[float | None]) -> float | None:
    found = quantiles(values, MS)
    return found.at["p50"] if found else None
