"""The release benchmark, and the tables in the pages: each has a command, and none is too old."""

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.release import BLOCK, PAGES, ROOT, TABLES, block, commit_here, main, written
from benchmarks.support.bench import ResultTable
from draftwerk.machine.version import __version__

CHANGELOG = ROOT / "CHANGELOG.md"
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def tables_of(page: Path) -> list[str]:
    """Return the tables of a page that hold figures."""
    return TABLE.findall(page.read_text(encoding="utf-8"))


def blocks() -> dict[str, re.Match[str]]:
    """Return the tables with their names."""
    return {
        found["name"]: found
        for page in PAGES
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    }


LAST_RELEASE = "0.1.0"
"""Tables that were measured with it hold until the one that is being made is released."""


def is_current(found: re.Match[str], version: str = __version__) -> bool:
    """Return whether a table was measured with the last release, or says why it holds."""
    versions = (version, LAST_RELEASE) if version.endswith(".dev0") else (version,)
    return found["version"] in versions or found["reason"] is not None


def test_the_program_is_of_the_version_that_the_changelog_is_about() -> None:
    heading = re.search(r"^## (\S+)( \(unreleased\))?$", CHANGELOG.read_text(), re.MULTILINE)
    assert heading
    assert __version__ == heading[1] + (".dev0" if heading[2] else "")


def test_every_table_of_the_pages_says_when_and_how_it_was_measured() -> None:
    named = [found["table"] for found in blocks().values()]
    tables = [table for page in PAGES for table in tables_of(page)]
    assert sorted(named) == sorted(tables)
    assert len(tables) >= 11


def test_every_table_of_the_release_stands_in_a_page_once() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(found["name"] for found in BLOCK.finditer(text)) == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_no_table_is_older_than_the_last_release(name: str) -> None:
    assert is_current(blocks()[name]), f"measure again: python -m benchmarks.release {name} --write"


def test_an_old_table_is_refused_unless_it_says_why_it_holds() -> None:
    head, table = "<!-- measured: load, 0.0.9 at 1234abc", "\n\n| a |\n|---|\n"
    (old,) = BLOCK.finditer(f"{head} -->{table}")
    (kept,) = BLOCK.finditer(f"{head}; still valid because nothing of it changed -->{table}")
    assert not is_current(old, "0.1.0")
    assert is_current(kept, "0.1.0") and kept["reason"] == "nothing of it changed"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("quick", [False, True])
def test_a_benchmark_takes_what_it_is_given(
    name: str, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parser is run, and nothing measured."""
    parsed: list[argparse.Namespace] = []

    def stop(self: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
        namespace, rest = self.parse_known_args(argv)
        assert rest == []
        parsed.append(namespace)
        raise InterruptedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    asked = argparse.Namespace(quick=quick, questions=Path("q.jsonl"), weights=Path("w"))
    with pytest.raises(InterruptedError):
        import_module(f"benchmarks.{TABLES[name].module}").table(TABLES[name].words(asked))
    (given,) = parsed
    assert all(str(getattr(given, file)) in ("q.jsonl", "w") for file in TABLES[name].takes)


def test_a_table_is_replaced_where_it_stands() -> None:
    found = ResultTable(["users", "tok/s"])
    found.add(1, 134.4)
    new = block("load", "1234abc", found)
    page = f"Before.\n\n{block('slo', 'ffff', found)}\n{new}\nBehind.\n"
    found.add(4, 351.0)
    newer = block("load", "5678def", found)
    assert written(page, "load", newer) == page.replace(new, newer)
    assert written(page, "peers", newer) == page


def test_a_simulated_table_is_printed_with_version_and_commit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["slo", "--quick"])
    (found,) = BLOCK.finditer(capsys.readouterr().out)
    assert (found["name"], found["version"]) == ("slo", __version__)
    assert found["commit"] == commit_here()
    assert found["table"].count("\n") == 10


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [(["nobody"], "no table nobody"), (["slo", "--quick", "--write"], "not to be kept")],
)
def test_mistakes_are_refused_by_name(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [page.read_text(encoding="utf-8") for page in PAGES]
    with pytest.raises(SystemExit):
        main(argv)
    assert complaint in capsys.readouterr().err
    assert [page.read_text(encoding="utf-8") for page in PAGES] == before
