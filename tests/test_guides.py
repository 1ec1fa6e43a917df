"""The pages are short; what life-of-a-request.md and extending.md say of the code is so."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "draftwerk"
SUFFIXES = {".py", ".cpp", ".h"}
FILE = re.compile(r"`([\w/-]+\.(?:py|cpp|h))`")
NAMED = re.compile(r"`([\w/]+\.py)`((?:,? `\w+`)+)")


def cells(page: str) -> Iterator[list[str]]:
    """Yield the cells of every table row of a page."""
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def definitions(path: Path) -> set[str]:
    return set(re.findall(r"(?:class|def) (\w+)", path.read_text(encoding="utf-8")))


def test_every_stop_of_a_requests_life_is_where_it_is_said_to_be():
    text = (ROOT / "docs/life-of-a-request.md").read_text(encoding="utf-8")
    named = [(file, re.findall(r"`(\w+)`", names)) for file, names in NAMED.findall(text)]
    assert len(named) >= 11
    missing = [
        f"{file}: {name}"
        for file, names in named
        for name in names
        if name not in definitions(PACKAGE / file)
    ]
    assert missing == []
    assert [file for file in FILE.findall(text) if not (PACKAGE / file).exists()] == []


def test_a_requests_life_has_twelve_stops_in_order():
    numbers = [row[0] for row in cells("life-of-a-request.md")]
    assert numbers == ["#", *map(str, range(1, 13)), "A", "B"]


def recipes() -> dict[str, tuple[str, set[str]]]:
    """Return by heading the specimen of each recipe and the files that it lists."""
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    found: dict[str, tuple[str, set[str]]] = {}
    for section in text.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        specimen = re.search(r"The specimen is `(\w+)`", body)
        assert specimen, heading
        rows = [line for line in body.splitlines() if line.startswith("| `")]
        listed = {file for row in rows for file in FILE.findall(row.split(" | ")[0])}
        found[heading] = specimen[1], listed
    return found


def files_with(word: str) -> set[str]:
    """Return the files of the package that mention a word."""
    whole = re.compile(rf"\b{re.escape(word)}\b")
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in SUFFIXES and whole.search(path.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("heading", recipes())
def test_a_recipe_lists_the_files_of_its_specimen(heading: str):
    specimen, listed = recipes()[heading]
    assert listed == files_with(specimen)


def test_there_are_eight_recipes():
    assert len(recipes()) == 8


BYTES_MAX, README_WORDS_MAX = 160_000, 700
"""Of all Markdown, and of its first page: what a reader can be asked to read."""


def test_the_documentation_stays_short():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert len(pages) > 15
    assert sum(page.stat().st_size for page in pages) <= BYTES_MAX
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS_MAX
