"""Runs compilers, and ends them as soon as the process that has asked for them is gone.

    first line of standard input: stages, each of commands that run at once      then: the end of it
    standard error: a line for each command that is done; the words of the first that fails

It leads a process group, for compilers start others. Nothing but the standard library is imported.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Thread

DONE = ".\n"
"""The line for a command that is done."""


def end_with_parent() -> None:
    """Kill the whole group once nobody holds the other end of standard input."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run every stage; returns the exit code."""
    stages, threads = json.loads(sys.stdin.readline())
    Thread(target=end_with_parent, daemon=True).start()
    for commands in stages:
        with ThreadPoolExecutor(threads) as pool:
            for ended in as_completed([pool.submit(run, command) for command in commands]):
                outcome = ended.result()
                sys.stderr.write(outcome.stderr if outcome.returncode else DONE)
                sys.stderr.flush()
                if outcome.returncode:
                    pool.shutdown(cancel_futures=True)
                    return 1
    return 0


def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run one compiler."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    # Not in order: a thread that waits for standard input would be waited for.
    os._exit(main())
