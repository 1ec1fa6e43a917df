"""Rounds do not depend on the seed of Python's hashes."""

import os
import subprocess
import sys

COMMAND = (sys.executable, "-m", "tests.speculative.scheduler.recorded_rounds", "40", "12")


def test_rounds_are_equal_under_two_hash_seeds() -> None:
    printed = {
        subprocess.run(
            COMMAND,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    (line,) = printed
    count, digest = line.split()
    assert int(count) > 1000
    assert len(digest) == 32
