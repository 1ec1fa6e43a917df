"""The Python of the how-to that needs no server runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    """Return the code of the section, as it would be typed."""
    text = (ROOT / "docs/how-to.md").read_text(encoding="utf-8")
    section = text.partition("\n### Without a server\n")[2].partition("\n## ")[0]
    return [dedent(code) for _, code in CODE.findall(section)]


def test_the_section_is_found() -> None:
    assert len(blocks()) == 6 and "report=print)" in blocks()[2]


@pytest.mark.parametrize("code", ["\n".join(blocks()[:2]), "\n".join(blocks()[2:])])
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
