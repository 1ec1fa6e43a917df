"""A chat load on the whole server, drafts on and off: `python -m benchmarks.speed.load`.

`draftwerk serve` runs in a process of its own and is asked over SSE by `draftwerk loadtest`: the
MT-bench questions of a file, greedy, every answer of the same length. Each run has a cache of its
own, and the store of finished outputs stays out.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.support.bench import ResultTable, parser, run, show
from benchmarks.support.prompts import by_category
from benchmarks.support.server import draftwerk
from draftwerk_tools.loadtest.client.sweep import sweep
from draftwerk_tools.loadtest.options import LoadTestOptions, SweepOptions
from draftwerk_tools.loadtest.results.curves import latency, over_load, tokens_per_s
from draftwerk_tools.loadtest.results.result import Run, Sweep

VARIANTS = (
    'on={"speculation":{"methods":["ngram","suffix","recycle","head"]}}',
    'off={"speculation":{"enabled":false}}',
)


async def measure(given: argparse.Namespace) -> Sweep:
    """Return the runs at each number of users, both ways in turn."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        categories = by_category(given.questions, 1000)
        prompts = categories.get("mt-bench") or next(iter(categories.values()))
        file.write_text("".join(json.dumps({"prompt": each}) + "\n" for each in prompts))
        most = str(max(given.users))
        place = ("--device", given.device, "--dtype", given.dtype)
        async with draftwerk(*place, "--requests-max", most) as server:
            options = LoadTestOptions(
                url=server.url,
                workload=f"jsonl:{file}",
                requests=given.count,
                max_tokens=given.tokens,
                ignore_eos=True,
                progress=False,
            )
            asked = SweepOptions(
                loads=",".join(map(str, given.users)),
                repeats=given.repeats,
                waves=2,
                variant=list(VARIANTS),
            )
            return await sweep(options, asked, [])


ROWS: dict[str, tuple[str, Callable[[Run], float | None]]] = {
    "requests/s, speculation on": ("on", lambda one: one.summary.throughput.requests_per_s),
    "tok/s, speculation on": ("on", tokens_per_s),
    "tok/s, speculation off": ("off", tokens_per_s),
    "first token p50, on, ms": ("on", latency("ttft", "p50")),
    "first token p50, off, ms": ("off", latency("ttft", "p50")),
}
"""By name: the variant, and the figure."""


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a column for each number of users, medians over the repeats."""
    options = parser(
        __doc__,
        questions=None,
        device="auto",
        dtype="bf16",
        users=[1, 4, 16, 64],
        count=8,
        tokens=128,
        repeats=3,
    )
    given = options.parse_args(argv)
    runs = run(measure, given).runs
    found = ResultTable(["users", *map(str, given.users)])
    for name, (label, figure) in ROWS.items():
        found.add(name, *(value for _, value in over_load(runs, label, figure)))
    return found


if __name__ == "__main__":
    show(table)
