"""A run as text for a terminal, and its rows as CSV."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from draftwerk_tools.loadtest.measure.device import device_use, stages_ms
from draftwerk_tools.loadtest.measure.quantiles import LEVELS, Quantiles
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.measure.summary import Summary, failure_lines
from draftwerk_tools.loadtest.results.result import Run, Sweep

LATENCY_NAMES = {
    "ttft": "TTFT",
    "ttft_service": "TTFT from sending",
    "tpot": "TPOT",
    "gap": "inter-chunk",
    "e2e": "E2E",
    "e2e_service": "E2E from sending",
    "lateness": "lateness",
}
CSV_SKIPPED = ("chunk_s", "chunk_tokens", "spec_histogram", "text")


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lay out cells in columns, the first to the left and the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(_row(line, widths) for line in lines)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([first, *rest]).rstrip()


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def latency_cells(name: str, found: Quantiles) -> list[str]:
    """One line of the latency table; a star marks a percentile of too few values."""
    cells = [number(found.at[level]) + ("*" if level in found.thin else " ") for level in LEVELS]
    return [name, str(found.n), number(found.mean), *cells, number(found.max)]


def latency_lines(summary: Summary) -> list[list[str]]:
    found = ((label, getattr(summary.latencies, key)) for key, label in LATENCY_NAMES.items())
    head = ["ms", "n", "mean", *(f"{level} " for level in LEVELS), "max"]
    return [head, *(latency_cells(label, value) for label, value in found if value)]


def run_text(run: Run) -> str:
    """Return the whole table of one run."""
    parts = [
        *_facts(run.summary),
        *_device(run),
        "",
        aligned(latency_lines(run.summary)),
        "",
        *(f"warning: {line}" for line in run.warnings),
    ]
    return "\n".join(parts).rstrip()


def _device(run: Run) -> Iterator[str]:
    growth = run.server.growth if run.server else {}
    use, stages = device_use(growth), stages_ms(growth)
    if stages:
        words = ", ".join(f"{stage} {ms:.1f}" for stage, ms in stages.items())
        yield f"stages, ms   {words} on average"
    if use is not None:
        yield f"device       {use.busy:.1%} busy, {use.gap_ms:.2f} ms between steps on average"


def _facts(summary: Summary) -> Iterator[str]:
    flow = summary.throughput
    outcomes = ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())
    yield f"requests     {outcomes or 'none'} in {flow.elapsed_s:.1f} s ({summary.warmup} warm-up)"
    if summary.errors:
        yield "errors       " + f"\n{' ' * 13}".join(failure_lines(summary))
    offered = "" if flow.offered_per_s is None else f"{flow.offered_per_s:.2f} offered, "
    yield (
        f"requests/s   {offered}{flow.requests_per_s:.2f} achieved, "
        f"{number(flow.steady_requests_per_s, 2)} steady"
    )
    yield (
        f"tokens/s     {number(flow.output_tokens_per_s)} out, "
        f"{number(flow.steady_output_tokens_per_s)} out steady, "
        f"{number(flow.prompt_tokens_per_s)} in"
    )
    yield from _extras(summary)


def _extras(summary: Summary) -> Iterator[str]:
    if summary.unexplained_share is not None:
        yield (
            "E2E check    TTFT + TPOT x (N - first) leaves out at most "
            f"{summary.unexplained_share:.1%} of a request's E2E"
        )
    if summary.goodput:
        share = summary.goodput.share
        yield (
            f"goodput      {share.share:.1%} within the SLOs ({share.met} of {share.n}, "
            f"95 % interval {share.low:.1%} to {share.high:.1%}), {summary.goodput.per_s:.2f}/s"
        )
    if summary.cached_tokens is not None and summary.prompt_tokens:
        cached = summary.cached_tokens / summary.prompt_tokens
        yield f"cached       {cached:.1%} of {summary.prompt_tokens} prompt tokens"
    if drafted := summary.speculation:
        yield (
            f"speculation  {number(drafted.accepted_length, 2)} tokens per step, "
            f"{drafted.accepted} of {drafted.drafted} drafted tokens accepted"
        )
    if summary.correct:
        yield f"correct      {summary.correct.met} of {summary.correct.n} counting answers"


def sweep_lines(sweep: Sweep) -> list[list[str]]:
    """Return a head and one line per run of a sweep."""
    head = ["run", sweep.over, "req/s", "tok/s", "TTFT p50 ms", "p99", "TPOT p50 ms"]
    head += ["E2E p50 ms", "p99", "goodput", "tok/step", "not ok"]
    return _without_empty([head, *(_sweep_cells(run) for run in sweep.runs)])


def _without_empty(lines: list[list[str]]) -> list[list[str]]:
    """Leave out the columns in which nothing stands."""
    columns = [column for column in zip(*lines, strict=True) if set(column[1:]) != {"-"}]
    return [list(line) for line in zip(*columns, strict=True)]


def sweep_text(sweep: Sweep) -> str:
    """Return the table of a sweep with its findings."""
    return "\n".join([aligned(sweep_lines(sweep)), "", *findings(sweep)]).rstrip()


def findings(sweep: Sweep) -> list[str]:
    """Return the lines about knees and a search's result."""
    knees = [f"knee{f' of {name}' if name else ''}: {at:g}" for name, at in sweep.knees.items()]
    held = [] if sweep.held is None else [f"highest {sweep.over} that holds: {sweep.held:g}"]
    return [*knees, *held, *sweep.notes, *_failed(sweep)]


def _failed(sweep: Sweep) -> Iterator[str]:
    for run in sweep.runs:
        for line in failure_lines(run.summary):
            yield f"{run.label} at {run.load or 0:g}: {line}".strip()


def _sweep_cells(run: Run) -> list[str]:
    summary, flow, at = run.summary, run.summary.throughput, run.summary.latencies
    failed = sum(n for name, n in summary.outcomes.items() if name not in ("ok", "cancelled"))
    return [
        run.label or "-",
        f"{run.load or 0:g}",
        number(flow.requests_per_s, 2),
        number(flow.output_tokens_per_s),
        *(_level(at.ttft, level) for level in ("p50", "p99")),
        _level(at.tpot, "p50"),
        *(_level(at.e2e, level) for level in ("p50", "p99")),
        f"{summary.goodput.share.share:.1%}" if summary.goodput else "-",
        number(summary.speculation.accepted_length if summary.speculation else None, 2),
        str(failed),
    ]


def _level(found: Quantiles | None, level: str) -> str:
    if found is None:
        return "-"
    return number(found.at[level]) + ("*" if level in found.thin else "")


def write_csv(path: Path, rows: Sequence[RequestRow]) -> None:
    """Write one line per request, without the per-chunk lists."""
    names = [name for name in RequestRow.__struct_fields__ if name not in CSV_SKIPPED]
    derived = {"ttft_s": RequestRow.ttft_s, "tpot_s": RequestRow.tpot_s, "e2e_s": RequestRow.e2e_s}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *derived])
        for row in rows:
            values = [getattr(row, name) for name in names]
            writer.writerow([*values, *(value(row) for value in derived.values())])
