"""Every table of docs/, measured on one commit.

    python -m benchmarks.release [NAMES] --questions SPEC_BENCH.jsonl --weights DIRECTORY --write

Nothing else may run meanwhile. Each table comes from the benchmark that its line here names, whose
ways are taken in turn; figures are medians. `--quick` takes tiny settings, to see that all of it
runs: such figures are not to be kept. `--write` puts the tables into the pages, each behind a
comment that says version, commit and command; tests/benchmarks/test_release.py refuses a table that
is older than the last release. DIRECTORY is what benchmarks.speed.peer_weights wrote; without it
llama.cpp is not measured.
"""

import argparse
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.support.bench import ResultTable
from draftwerk.machine.version import __version__

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / name for name in ("docs/measurements.md", "docs/approximations.md"))
BLOCK = re.compile(
    r"<!-- measured: (?P<name>[\w-]+), (?P<version>[\d.]+(?:dev0)?) at (?P<commit>\w+)"
    r"(?:; still valid because (?P<reason>[^>]+?))? -->\n\n(?P<table>(?:\|.*\n)+)"
)
"""A table in a page, and what is said of it."""


@dataclass(frozen=True, slots=True)
class ReleaseTable:
    """A table that is measured for every release."""

    module: str
    """With a function `table(arguments)`."""
    arguments: str = ""
    quick: str = ""
    takes: tuple[str, ...] = ()
    """Files that it is given: questions, weights."""

    def measure(self, given: argparse.Namespace) -> ResultTable:
        """Return the table."""
        module: Any = import_module(f"benchmarks.{self.module}")
        return module.table(self.words(given))

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the benchmark's command line."""
        files = {name: getattr(given, name) for name in self.takes}
        words = [word for name, file in files.items() if file for word in (f"--{name}", str(file))]
        return [*words, *self.arguments.split(), *(self.quick.split() if given.quick else ())]


QUESTIONS, WEIGHTS = ("questions",), ("weights",)
QUICK_PEERS = "--users 1 2 --tokens 8 --repeats 1 --waves 1 --texts 2 --formats bf16"
TABLES = {
    "drafts": ReleaseTable(
        "speed.draft_gains",
        "--count 3",
        "--count 1 --tokens 8 --dtypes auto --temperatures 0",
        QUESTIONS,
    ),
    "load": ReleaseTable(
        "speed.load", "", "--users 1 2 --count 2 --tokens 8 --repeats 1", QUESTIONS
    ),
    "peers": ReleaseTable("processors", "--install", QUICK_PEERS, WEIGHTS),
    "avx2": ReleaseTable("processors", "--install --isas avx2", QUICK_PEERS, WEIGHTS),
    "prefix": ReleaseTable("prompts.prefix", "", "--repeats 1 --rules 4"),
    "categories": ReleaseTable(
        "speed.speculation", "", "--count 1 --tokens 8 --temperatures 0", QUESTIONS
    ),
    "never-slower": ReleaseTable(
        "speed.never_slower",
        "--repeats 5",
        "--users 1 2 --tokens 4 --repeats 1 --temperatures 0",
        QUESTIONS,
    ),
    "beams": ReleaseTable("drafting.beams", "", "--count 1 --tokens 8 --repeats 1", QUESTIONS),
    "engine": ReleaseTable("speed.engine_overhead", "", "--users 1 2 --tokens 12 --repeats 1"),
    "slo": ReleaseTable(
        "speed.slo_policies", "--rates 4 --users 16", "--requests 12 --rates 2 --users 4"
    ),
    "experts": ReleaseTable(
        "files",
        "--shapes 4B-A0.4B --types Q4_K_M --tokens 96 --drafts",
        "--users 1 --tokens 4 --repeats 1",
    ),
    "bit-widths": ReleaseTable("bit_widths", "", "--users 1 --tokens 4 --repeats 1"),
}


def block(name: str, commit: str, found: ResultTable) -> str:
    """Return a table as it stands in a page."""
    return f"<!-- measured: {name}, {__version__} at {commit} -->\n\n{found.markdown()}\n"


def written(text: str, name: str, new: str) -> str:
    """Return a page with a table replaced; the page itself where it has no such table."""
    return BLOCK.sub(lambda old: new if old["name"] == name else old[0], text)


def commit_here() -> str:
    """Return the commit that is checked out; `_changed` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=_changed", "--exclude=*"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAMES", help=", ".join(TABLES))
    parser.add_argument("--questions", type=Path, help="Spec-Bench's JSONL file")
    parser.add_argument("--weights", type=Path, help="what benchmarks.speed.peer_weights wrote")
    parser.add_argument("--quick", action="store_true", help="tiny settings")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    given = parser.parse_args(argv)
    if unknown := set(given.names) - TABLES.keys():
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    if given.quick and given.write:
        parser.error("--write: figures of tiny settings are not to be kept")
    commit = commit_here()
    for name in given.names or TABLES:
        found = TABLES[name].measure(given)
        new = block(name, commit, found)
        print(new, *found.notes, sep="\n", flush=True)
        for page in PAGES if given.write else ():
            text = page.read_text(encoding="utf-8")
            page.write_text(written(text, name, new), encoding="utf-8")


if __name__ == "__main__":
    main()
