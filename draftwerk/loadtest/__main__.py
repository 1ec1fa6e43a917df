"""The command line: `draftwerk loadtest run|sweep|search|throughput|compare|report`."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from msgspec import Struct

from draftwerk.loadtest import commands
from draftwerk.loadtest.arguments import add_options
from draftwerk.loadtest.options import (
    LoadTestOptions,
    SearchOptions,
    SweepOptions,
    ThroughputOptions,
)

Command = Callable[[argparse.Namespace, list[str]], int]
# What a sweep or a search sets itself.
LOAD = ("concurrency", "rate", "replay", "time_scale", "label")


def parser() -> argparse.ArgumentParser:
    """Build the parser; every option comes from a struct in `options`."""
    top = argparse.ArgumentParser(
        prog="draftwerk loadtest", description="Load tests for any OpenAI-compatible server."
    )
    subs = top.add_subparsers(required=True, metavar="COMMAND")
    _loading(subs.add_parser("run", help="one load"), commands.run, (LoadTestOptions,))
    _loading(
        subs.add_parser("sweep", help="several loads"),
        commands.sweep,
        (LoadTestOptions, SweepOptions),
    )
    searching = subs.add_parser("search", help="the highest load that keeps the SLOs")
    _loading(searching, commands.search, (LoadTestOptions, SearchOptions))
    doubling = subs.add_parser("throughput", help="everybody at once, doubled while it gains")
    _loading(doubling, commands.throughput, (LoadTestOptions, ThroughputOptions))
    _files(subs.add_parser("compare", help="two results"), commands.compare, ("before", "after"))
    reporting = subs.add_parser("report", help="a result as an HTML page")
    _files(reporting, commands.report, ("result",))
    reporting.add_argument("--html", help="where to; beside the result if left out")
    return top


def _loading(sub: argparse.ArgumentParser, command: Command, kinds: Sequence[type[Struct]]) -> None:
    sub.add_argument("url", help="the server, with or without /v1")
    skip = ("url",) if len(kinds) == 1 else ("url", *LOAD)
    for kind in kinds:
        add_options(sub, kind, skip)
    sub.set_defaults(command=command)


def _files(sub: argparse.ArgumentParser, command: Command, names: Sequence[str]) -> None:
    for name in names:
        sub.add_argument(name, help="a result file")
    sub.set_defaults(command=command)


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; what the user got wrong is one line on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    given = parser().parse_args(argv)
    # SIGTERM is handled like Ctrl-C: what was measured is kept.
    # A script's background job starts with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return given.command(given, argv)
    except ModuleNotFoundError as error:
        print(f"loadtest: {error.name} is not installed: pip install {error.name}", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"loadtest: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
