"""`LLAMA_CPP_TESTS=FOLDER python -m validation.peer_suites`: llama.cpp's own tests, of this server.

FOLDER is `tools/server/tests` of its source, which the source package `llama-cpp-python` has under
`vendor/llama.cpp`; its requirements are installed where `--python` says. Prints what failed and how
it begins. Many tests expect the texts of a model of theirs, so each failure is to be read, and the
exit code is always 0.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from draftwerk.loadtest.server.launcher import says_ready, serving

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


async def run_suites(folder: Path, python: str, port: int) -> None:
    """Run every file against a server of its own, print what failed."""
    names = [part for name in NAMES for part in ("--served-model-name", name)]
    command = [sys.executable, "-m", "draftwerk", "serve", "--port", str(port), *names]
    for suite, flags in SUITES.items():
        print(f"## {suite}\n", flush=True)
        url = f"http://127.0.0.1:{port}"
        async with serving([*command, *flags], url, ready=says_ready, start_s=START_S):
            found = await asyncio.to_thread(outcome, folder, python, port, suite)
        print("\n".join(f"- {each}" for each in found), "\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m validation.peer_suites", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="where pytest and requests are")
    parser.add_argument("--port", type=int, default=8480)
    parsed = parser.parse_args()
    folder = os.environ.get("LLAMA_CPP_TESTS", "")
    if not folder:
        parser.error("LLAMA_CPP_TESTS names no folder")
    asyncio.run(run_suites(Path(folder), parsed.python, parsed.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
