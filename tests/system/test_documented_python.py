"""The Python in README.md and in the how-to runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
"""An indented block, empty lines in it."""


def section(file: str, title: str) -> str:
    """Return the text under a heading."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str) -> list[str]:
    """Return the indented blocks of a section, as they would be typed."""
    return [dedent(found).strip("\n") for found in CODE.findall(text) if found.strip()]


README = blocks(section("README.md", "From Python"))
HOW_TO = blocks(section("docs/how-to.md", "Use it from Python"))


def test_the_sections_are_found() -> None:
    assert len(README) == 2 and all("from draftwerk import" in each for each in README)
    assert len(HOW_TO) == 4 and "report=print)" in HOW_TO[0]


@pytest.mark.parametrize("code", ["\n".join(README), "\n".join(HOW_TO)], ids=["readme", "how-to"])
def test_it_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        timeout=500,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
