"""The command line: `draftwerk loadtest run|sweep|search|throughput|replay|compare|report`."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TypeVar

from msgspec import Struct

from draftwerk_tools.loadtest import commands
from draftwerk_tools.loadtest.arguments import add_options
from draftwerk_tools.loadtest.options import (
    LoadTestOptions,
    SearchOptions,
    SweepOptions,
    ThroughputOptions,
)

Positive = TypeVar("Positive", int, float)
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
    replaying = subs.add_parser("replay", help="a server's record, sent again")
    replaying.add_argument("url", help="the server, with or without /v1")
    add_replay(replaying, speed=1.0, at_once=1024)
    replaying.add_argument(
        "--check", action="store_true", help="exit with 1 if a text is not what it was"
    )
    reporting = subs.add_parser("report", help="a result as an HTML page")
    _files(reporting, commands.report, ("result",))
    reporting.add_argument("--html", help="where to; beside the result if left out")
    return top


def add_replay(sub: argparse.ArgumentParser, *, speed: float, at_once: int) -> None:
    """Add what a replay needs besides its server."""
    sub.add_argument("log", help="what `draftwerk serve --record` wrote")
    sub.add_argument("--api-key", default="", metavar="KEY", help="or $OPENAI_API_KEY")
    sub.add_argument(
        "--speed",
        type=_positive(float, zero=True),
        default=speed,
        help="times the recorded rate; 0 sends as fast as answers come (default %(default)g)",
    )
    sub.add_argument(
        "--at-once",
        type=_positive(int),
        default=at_once,
        help="requests under way at most (default %(default)d)",
    )
    sub.set_defaults(command=commands.replay)


def _positive(kind: Callable[[str], Positive], zero: bool = False) -> Callable[[str], Positive]:
    def number(text: str) -> Positive:
        found = kind(text)
        if not (found > 0 or (zero and found == 0)):
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return found

    return number


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
