"""Rows of tests/tested_elsewhere.txt, broken one by one: the test that each names must fail.

    python -m tests.support.broken_rows [PART OF A FILE'S NAME]

The definition that a row names raises while its test runs; the file is put back behind that.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "tests" / "tested_elsewhere.txt"


def broken(source: str, name: str) -> str:
    """Return a file's text in which a function, or a method as `Class.method`, raises."""
    nodes: list[ast.stmt] = ast.parse(source).body
    has_docstring = False
    for word in name.split("."):
        node = next(each for each in nodes if getattr(each, "name", "") == word)
        assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        nodes, has_docstring = node.body, ast.get_docstring(node) is not None
    first = nodes[1] if has_docstring and nodes[1:] else nodes[0]
    lines = source.splitlines(keepends=True)
    lines.insert(first.lineno - 1, " " * first.col_offset + 'raise AssertionError("broken")\n')
    return "".join(lines)


def fails(file: Path, name: str, test: str) -> bool:
    """Return whether a test fails while the definition raises."""
    source = file.read_text(encoding="utf-8")
    try:
        file.write_text(broken(source, name), encoding="utf-8")
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n0", test]
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 1
    finally:
        file.write_text(source, encoding="utf-8")


def main() -> int:
    part = "".join(sys.argv[1:])
    passed = 0
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        file, test, *names = line.split()
        for name in names:
            if part in file:
                found = fails(ROOT / file, name, test)
                passed += not found
                print("fails" if found else "PASSES", file, name, test, flush=True)
    return int(passed > 0)


if __name__ == "__main__":
    sys.exit(main())
