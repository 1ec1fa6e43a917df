"""`LLAMA_CPP_TESTS=FOLDER python -m validation.peer_suites`: llama.cpp's own tests, of this server.

FOLDER is `tools/server/tests` of its source, which the source package `llama-cpp-python` has under
`vendor/llama.cpp`; its requirements are installed where `--python` says. Prints what failed and how
it begins. Many tests expect the texts of a model of theirs, so each failure is to be read, and the
exit code is always 0.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SUITES = {
    "test_chat_completion": (), "test_compat_anthropic": (), "test_compat_oai_responses": (),
    "test_tokenize": (), "test_rerank": ("--rerank", "yes-no"),
}  # fmt: skip
"""Each file, and the flags of the server that it needs."""
NAMES = ("gpt-3.5-turbo-instruct", "gpt-4.1", "codellama70b", "test", "claude-test")
"""What they call the model, which their server does not read."""
START_S, SUITE_S = 300, 600
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+.*)$", re.MULTILINE)
COUNTS = re.compile(r"^.*\b(?:passed|failed)\b.* in .*$", re.MULTILINE)


@contextmanager
def serving(port: int, flags: tuple[str, ...]) -> Generator[None, None, None]:
    """Have `draftwerk serve` at a port while the block lasts."""
    names = [part for name in NAMES for part in ("--served-model-name", name)]
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *names, *flags]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_until_ready(port)
        yield
    finally:
        server.terminate()
        server.wait()


def _wait_until_ready(port: int) -> None:
    """Return once the server takes requests. Raises TimeoutError."""
    for _ in range(START_S):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    raise TimeoutError(f"no server at port {port}")


def outcome(folder: Path, python: str, port: int, suite: str) -> list[str]:
    """Run one file of tests; returns what failed, and the counts."""
    command = [python, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", f"unit/{suite}.py"]
    environment = {**os.environ, "DEBUG_EXTERNAL": "1", "PORT": str(port)}
    child = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    return [*FAILED.findall(child.stdout), *COUNTS.findall(child.stdout)[-1:]]


def main() -> int:
    """Run every file, print what failed."""
    parser = argparse.ArgumentParser(prog="python -m validation.peer_suites", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="where pytest and requests are")
    parser.add_argument("--port", type=int, default=8480)
    parsed = parser.parse_args()
    folder = os.environ.get("LLAMA_CPP_TESTS", "")
    if not folder:
        parser.error("LLAMA_CPP_TESTS names no folder")
    for suite, flags in SUITES.items():
        print(f"## {suite}\n", flush=True)
        with serving(parsed.port, flags):
            found = outcome(Path(folder), parsed.python, parsed.port, suite)
        print("\n".join(f"- {each}" for each in found), "\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
