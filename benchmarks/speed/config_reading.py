"""CPU time to read a model's config, in fresh processes, beside another checkout's.

    python -m benchmarks.speed.config_reading DIRECTORY... [--beside CHECKOUT] [--count 9]

Each DIRECTORY holds a `config.json`. Medians in milliseconds: of the imports, of the first reading
(with the lists of keys and the classes' defaults) and of another. The checkouts take turns.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[2]
STAGES = ("imports", "first", "another")
READING = """
import sys, time
from pathlib import Path
times = [time.process_time()]
from draftwerk.model.checkpoint.hf_config import read_config
times.append(time.process_time())
for _ in range(2):
    read_config(Path(sys.argv[1]))
    times.append(time.process_time())
print(*(1000 * (after - before) for before, after in zip(times, times[1:])))
"""


def times(checkout: Path, directory: Path) -> list[float]:
    """Return the milliseconds of each stage, in a new process."""
    command = [sys.executable, "-c", READING, str(directory.resolve())]
    found = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    return [float(each) for each in found.stdout.split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="+", type=Path)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--count", type=int, default=9, help="processes of each")
    asked = parser.parse_args()
    checkouts = [HERE, *([asked.beside.resolve()] if asked.beside else [])]
    for directory in asked.directory:
        rounds = [[times(each, directory) for each in checkouts] for _ in range(asked.count + 1)]
        for checkout, found in zip(checkouts, zip(*rounds[1:], strict=True), strict=True):
            medians = [median(stage) for stage in zip(*found, strict=True)]
            said = ", ".join(
                f"{name} {ms:.1f} ms" for name, ms in zip(STAGES, medians, strict=True)
            )
            print(f"{directory.name}, {checkout}: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
