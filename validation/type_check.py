"""`python -m validation.type_check`: pyright, unless it has passed on the same files before.

Its verdict depends on the Python files that it reads, which are all but the tests themselves, on
its settings, and on what is installed. A digest of those that passed last is kept beside Python.
"""

import subprocess
import sys
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path

LISTED = ("*.py", "*.pyi", "pyproject.toml", ":!test_*.py", ":!**/test_*.py")
"""What pyright reads: no file that it checks imports a test."""
PASSED = Path(sys.prefix) / ".types-passed"


def digest() -> str:
    """Return a digest of all that decides the verdict."""
    found = sha256(sys.version.encode())
    for each in sorted(f"{each.name} {each.version}" for each in distributions()):
        found.update(each.encode())
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *LISTED]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in sorted({*listed.split("\0")} - {""}):
        if Path(name).is_file():  # not deleted
            content = Path(name).read_bytes()
            found.update(f"{name} {len(content)} ".encode() + content)
    return found.hexdigest()


def main() -> int:
    """Return pyright's exit code, 0 without running it where nothing has changed."""
    now = digest()
    if PASSED.is_file() and PASSED.read_text() == now:
        print("types: passed on the same files before")
        return 0
    code = subprocess.run([Path(sys.executable).with_name("pyright")], check=False).returncode
    if code == 0 and digest() == now:  # not edited meanwhile
        PASSED.write_text(now)
    return code


if __name__ == "__main__":
    sys.exit(main())
