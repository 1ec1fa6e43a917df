"""Equal variants are found equal: `python -m validation.equal_variants URL [--times 10]`.

Each time a sweep of two variants that are the same is run against the server, as `draftwerk
loadtest sweep` runs it; the command counts the sweeps that call a difference clear, and exits with
1 if there is one. `--isolate` chooses how their runs are kept out of each other's caches.
"""

import argparse
import asyncio
import sys
from typing import get_args

from msgspec.structs import replace

from draftwerk.loadtest.client.sweep import sweep
from draftwerk.loadtest.options import Isolate, LoadTestOptions, SweepOptions
from draftwerk.loadtest.results.differences import difference_lines, differences
from draftwerk.loadtest.results.table import aligned


async def run(arguments: argparse.Namespace) -> int:
    """Return in how many sweeps a difference was called clear."""
    options = LoadTestOptions(
        url=arguments.url,
        requests=arguments.requests,
        max_tokens=arguments.tokens,
        ignore_eos=True,
        chunk_times=False,
        progress=False,
        workload=arguments.workload,
    )
    asked = SweepOptions(
        loads=arguments.loads,
        repeats=arguments.repeats,
        waves=1,
        variant=["one={}", "two={}"],
        isolate=arguments.isolate,
    )
    wrong = 0
    for number in range(arguments.times):
        found = await sweep(replace(options, seed=number), asked, [])
        wrong += any(each.clear for each in differences(found))
        print(f"{aligned(difference_lines(found))}\n", flush=True)
        if number == 0:
            print("\n".join(found.notes) + "\n", flush=True)
    print(f"{wrong} of {arguments.times} sweeps found a difference between equal variants")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--loads", default="1,4")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--workload", default="synthetic")
    parser.add_argument("--isolate", choices=get_args(get_args(Isolate)[0]), default="auto")
    return int(asyncio.run(run(parser.parse_args())) > 0)


if __name__ == "__main__":
    sys.exit(main())
