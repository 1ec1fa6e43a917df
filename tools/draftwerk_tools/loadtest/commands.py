"""The subcommands: each reads its options, does its work and leaves its result behind.

Those that send requests import the HTTP client; `report` and `compare` start without it.
"""

import argparse
import asyncio
import os
from pathlib import Path

from draftwerk_tools.loadtest.arguments import read_options
from draftwerk_tools.loadtest.options import (
    LoadTestOptions,
    SearchOptions,
    SweepOptions,
    ThroughputOptions,
)
from draftwerk_tools.loadtest.report.page import result_page
from draftwerk_tools.loadtest.results.comparison import comparison_text
from draftwerk_tools.loadtest.results.differences import EXPLANATION, difference_lines
from draftwerk_tools.loadtest.results.result import Result, Run, Sweep, read_result, write_result
from draftwerk_tools.loadtest.results.table import aligned, run_text, sweep_text, write_csv


def run(given: argparse.Namespace, argv: list[str]) -> int:
    from draftwerk_tools.loadtest.client.run import run_load

    options = read_options(given, LoadTestOptions)
    return leave(asyncio.run(run_load(options, argv)), options)


def sweep(given: argparse.Namespace, argv: list[str]) -> int:
    from draftwerk_tools.loadtest.client.sweep import sweep as sweep_loads

    options, asked = read_options(given, LoadTestOptions), read_options(given, SweepOptions)
    return leave(asyncio.run(sweep_loads(options, asked, argv)), options)


def search(given: argparse.Namespace, argv: list[str]) -> int:
    from draftwerk_tools.loadtest.client.search import search as search_load

    options, asked = read_options(given, LoadTestOptions), read_options(given, SearchOptions)
    return leave(asyncio.run(search_load(options, asked, argv)), options)


def throughput(given: argparse.Namespace, argv: list[str]) -> int:
    from draftwerk_tools.loadtest.client.throughput import throughput as double_users

    options, asked = read_options(given, LoadTestOptions), read_options(given, ThroughputOptions)
    return leave(asyncio.run(double_users(options, asked, argv)), options)


def compare(given: argparse.Namespace, argv: list[str]) -> int:
    print(comparison_text(read_result(Path(given.before)), read_result(Path(given.after))))
    return 0


def replay(given: argparse.Namespace, argv: list[str]) -> int:
    from draftwerk_tools.loadtest.client.replay import Replay, Replayed, read_log, summary
    from draftwerk_tools.loadtest.client.target import Target

    def told(replayed: Replayed) -> None:
        change = replayed.change
        if change is not None:
            where = f" at {change.place}" if change.place else ""
            print(f"{replayed.request.id}: {change.cause}{where}: {change.detail}", flush=True)

    requests = read_log(Path(given.log).read_text(encoding="utf-8").splitlines())
    key = given.api_key or os.environ.get("OPENAI_API_KEY", "")
    log_run = Replay(Target.of(given.url, key), given.at_once, given.speed)
    found = asyncio.run(log_run.run(requests, told))
    print(*summary(found), sep="\n")
    return 1 if given.check and any(each.change is not None for each in found) else 0


def report(given: argparse.Namespace, argv: list[str]) -> int:
    target = Path(given.html or Path(given.result).with_suffix(".html"))
    target.write_text(result_page(read_result(Path(given.result))))
    print(target)
    return 0


def leave(found: Result, options: LoadTestOptions) -> int:
    """Print the table and write the requested files; the exit code is 0 if any request worked."""
    runs = [found] if isinstance(found, Run) else found.runs
    print(run_text(found) if isinstance(found, Run) else sweep_text(found))
    if isinstance(found, Sweep) and (compared := difference_lines(found)):
        print(f"\n{aligned(compared)}\n{EXPLANATION}")
    if options.output:
        write_result(Path(options.output), found)
    if options.csv:
        write_csv(Path(options.csv), [row for run in runs for row in run.rows])
    if options.html:
        Path(options.html).write_text(result_page(found))
    return 0 if any(row.ok for run in runs for row in run.rows) else 1
