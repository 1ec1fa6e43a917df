"""What drafts gain in each format: `python -m benchmarks.speed.draft_gains`.

One user asks questions whose answers end by themselves, each with drafts and without, in turn, by
one engine; the texts are equal. `auto` is the format that a server takes by itself. Tokens per
second are counted from the first token of an answer to the last.
"""

import argparse
from collections.abc import Sequence

from benchmarks.speed.speculation import measure, ratios
from benchmarks.support.bench import ResultTable, parser, run, show


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each format and temperature."""
    options = parser(__doc__, questions=None, count=40, tokens=256, seed=1)
    options.add_argument("--dtypes", nargs="+", default=["auto", "int8", "bf16"], metavar="DTYPE")
    options.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    options.add_argument("--speculate", default="auto")
    given = options.parse_args(argv)
    found = ResultTable(
        ["format", "T", "tok/s without drafts", "with drafts", "times as fast", "tokens/step"]
    )
    for dtype in given.dtypes:
        pairs = run(measure, argparse.Namespace(**vars(given), dtype=dtype))
        for temperature in given.temperatures:
            some = [pair for pair in pairs if pair.plain.temperature == temperature]
            tokens = sum(len(pair.plain.tokens) - 1 for pair in some)
            rates = [
                tokens / sum(each.seconds for each in ways)
                for ways in ([pair.plain for pair in some], [pair.drafted for pair in some])
            ]
            per_step, faster = ratios(some)
            found.add(dtype, f"{temperature:g}", *rates, faster, per_step)
        found.notes.append(
            f"{dtype}: {sum(pair.plain.looping for pair in pairs)} of {len(pairs)} texts loop"
        )
    return found


if __name__ == "__main__":
    show(table)
