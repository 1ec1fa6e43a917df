"""The report page of a result."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from draftwerk_tools.loadtest.report.chart import Chart
from draftwerk_tools.loadtest.report.html import (
    cards,
    details,
    heading,
    page,
    paragraph,
    table,
    warnings,
)
from draftwerk_tools.loadtest.report.run_charts import run_charts
from draftwerk_tools.loadtest.report.sweep_charts import sweep_charts
from draftwerk_tools.loadtest.results.curves import labels, over_load, tokens_per_s
from draftwerk_tools.loadtest.results.differences import EXPLANATION, difference_lines
from draftwerk_tools.loadtest.results.environment import Environment
from draftwerk_tools.loadtest.results.result import Result, Run, Sweep
from draftwerk_tools.loadtest.results.table import latency_lines, number, sweep_lines


def result_page(result: Result) -> str:
    """Return the page as one self-contained HTML document."""
    return _run_page(result) if isinstance(result, Run) else _sweep_page(result)


def _run_page(run: Run) -> str:
    body = [
        cards(_headlines(run)),
        warnings(run.warnings),
        _grid(run_charts(run)),
        heading("Latencies"),
        '<p class="note">Counted from the scheduled time unless said otherwise; '
        "* marks a percentile with fewer than five values beyond it.</p>",
        table(latency_lines(run.summary)),
        *_categories(run),
        *_errors(run),
        *_server(run),
        _provenance(run.environment, run),
    ]
    return page(run.label or "Load test", _subtitle(run.environment, run), body)


def _sweep_page(sweep: Sweep) -> str:
    doubts = dict.fromkeys(
        f"{run.label} {run.load or 0:g}: {line}".strip()
        for run in sweep.runs
        for line in run.warnings
    )
    body = [
        cards(_found(sweep)),
        _grid(sweep_charts(sweep)),
        heading("Runs"),
        table(sweep_lines(sweep)),
        *[paragraph(line) for line in sweep.notes],
        *_differences(sweep),
        *([heading("Warnings"), warnings(doubts)] if doubts else []),
        _provenance(sweep.environment, sweep.runs[0] if sweep.runs else None),
    ]
    first = sweep.runs[0] if sweep.runs else None
    return page(f"Load test over {sweep.over}", _subtitle(sweep.environment, first), body)


def _differences(sweep: Sweep) -> list[str]:
    lines = difference_lines(sweep)
    if not lines:
        return []
    return [heading("What the variants differ by"), paragraph(EXPLANATION), table(lines)]


def _found(sweep: Sweep) -> list[tuple[str, str]]:
    """Return the most that each label reached, where it is best used, and what a search found."""
    held = [] if sweep.held is None else [(f"{sweep.held:g}", f"highest {sweep.over} that holds")]
    return [*held, *(_best(sweep, name) for name in labels(sweep.runs))]


def _best(sweep: Sweep, name: str) -> tuple[str, str]:
    load, speed = max(over_load(sweep.runs, name, tokens_per_s), key=lambda point: point[1])
    knee = f", knee at {sweep.knees[name]:g}" if name in sweep.knees else ""
    return f"{number(speed)} tok/s", f"{name} at {load:g}{knee}".strip()


def _grid(charts: Sequence[Chart]) -> str:
    return f'<div class="charts">{"".join(chart.html() for chart in charts)}</div>'


def _headlines(run: Run) -> list[tuple[str, str]]:
    summary, flow, at = run.summary, run.summary.throughput, run.summary.latencies
    shown = [(number(flow.output_tokens_per_s), "output tokens/s")]
    shown.append((number(flow.requests_per_s, 2), "requests/s"))
    for name, found in (("TTFT", at.ttft), ("TPOT", at.tpot), ("E2E", at.e2e)):
        if found:
            shown.append((f"{number(found.at['p50'])} ms", f"{name}, median of {found.n}"))
    if summary.goodput:
        share = summary.goodput.share
        within = f"within SLOs ({share.low:.0%} to {share.high:.0%})"
        shown.append((f"{share.share:.1%}", within))
    if summary.speculation and summary.speculation.accepted_length:
        shown.append((f"{summary.speculation.accepted_length:.2f}", "tokens per step"))
    if summary.cached_tokens is not None and summary.prompt_tokens:
        shown.append((f"{summary.cached_tokens / summary.prompt_tokens:.0%}", "of prompt cached"))
    if summary.correct:
        shown.append((f"{summary.correct.met} of {summary.correct.n}", "counted right"))
    failed = sum(n for kind, n in summary.outcomes.items() if kind in ("error", "refused"))
    return [*shown, (str(failed), "failed requests")]


def _subtitle(where: Environment, run: Run | None) -> str:
    asked = run.options if run else None
    load = (
        f"{asked.endpoint} over {asked.transport}, {_workload_name(asked.workload)}"
        if asked
        else ""
    )
    model = ", ".join((run.environment.models if run else where.models)[:2])
    parts = (where.started, model, load, f"{where.cpus} x {where.cpu}")
    return "  ·  ".join(part for part in parts if part)


def _workload_name(workload: str) -> str:
    kind, _, path = workload.partition(":")
    return f"{kind} ({Path(path).name})" if path else kind


def _categories(run: Run) -> list[str]:
    groups = run.summary.categories
    if len(groups) < 2:
        return []
    head = ["category", "n", "TTFT p50 ms", "TPOT p50 ms", "tokens per step"]
    lines = [
        [
            name or "-",
            str(group.n),
            number(group.ttft_p50_ms),
            number(group.tpot_p50_ms),
            number(group.accepted_length, 2),
        ]
        for name, group in groups.items()
    ]
    return [heading("By category"), table([head, *lines])]


def _errors(run: Run) -> list[str]:
    if not run.summary.errors:
        return []
    summary = run.summary
    lines = [
        [kind, str(count), summary.examples.get(kind, "")] for kind, count in summary.errors.items()
    ]
    return [heading("Errors"), table([["kind", "n", "for example"], *lines])]


def _server(run: Run) -> list[str]:
    if not run.server or not run.server.growth:
        return []
    lines = [[name, f"{value:,g}"] for name, value in sorted(run.server.growth.items())]
    text = "\n".join(f"{value:>16}  {name}" for name, value in lines)
    return [details("What the server's counters grew by", text)]


def _provenance(where: Environment, run: Run | None) -> str:
    parts = {"environment": where, "options": run.options if run else None}
    text = msgspec.json.format(msgspec.json.encode(parts), indent=2).decode()
    return details("How this was measured", text)
