"""What became faster or slower since the baseline was committed.

    python -m benchmarks.speed.ratios [--write]

Every figure is a ratio of times that were measured side by side, so that it holds on a busy
machine and roughly on another one. Lower is better, unless marked. `--write` makes this the
baseline.
"""

import argparse
import json
import platform
from pathlib import Path
from statistics import median

import anyio

from benchmarks.kernels import Bench
from benchmarks.speed.engine_overhead import TimedBatch, batching, overhead
from benchmarks.support.engine import engine
from draftwerk.api.core.config import Settings
from draftwerk.model.native.pool import Pool

BASELINE = Path(__file__).parents[2] / "docs" / "results" / "ratios.json"
DTYPES = ("bf16", "int8", "int4")
STEPS = (1, 8, 16, 64)
ROWS = (4, 16, 48)
SEQUENCES = (1, 8, 16)
NOTABLE = 0.1
"""A change that is pointed out: repeated runs differ by about half of it."""
HIGHER_IS_BETTER = ("times as fast",)


def step_ratios() -> dict[str, float]:
    """Return how far steps of the default model's shape are from their floor."""
    pool = Pool()
    found: dict[str, float] = {}
    for dtype in DTYPES:
        bench = Bench(dtype, pool)
        for tokens in STEPS:
            products, step, _ = bench.line(tokens).ratios()
            found[f"{dtype}, T = {tokens}: products / floor"] = products
            found[f"{dtype}, T = {tokens}: step / products"] = step
        for rows in ROWS:
            many = bench.decoding(rows)
            found[f"{dtype}, {rows} rows: step / products"] = many.step / many.linears
    return found


async def engine_ratios(tokens: int, repeats: int) -> dict[str, float]:
    """Return what the engine adds to the device's time, and what batching gains."""
    found: dict[str, list[float]] = {}
    async with engine(Settings(dtype="bf16", speculate="off")) as running:
        await TimedBatch(["warmth"], 16).run(running)
        for _ in range(repeats):
            for sequences in SEQUENCES:
                cost = await overhead(running, sequences, tokens)
                name = f"{sequences} sequences: round / device time"
                found.setdefault(name, []).append(cost.wall / cost.device)
            times = await batching(running, tokens)
            found.setdefault("16 at once: times as fast as in turn", []).append(times)
    return {name: median(ratios) for name, ratios in found.items()}


def show(found: dict[str, float], baseline: dict[str, float]) -> None:
    """Print every ratio beside the baseline's."""
    print(f"{'':44s} {'now':>7s} {'then':>7s} {'change':>7s}")
    for name, ratio in found.items():
        line = f"{name:44s} {ratio:7.3f}"
        if name in baseline:
            change = ratio / baseline[name] - 1
            line += f" {baseline[name]:7.3f} {change:+7.1%}"
            worse = -change if any(mark in name for mark in HIGHER_IS_BETTER) else change
            if abs(worse) > NOTABLE:
                line += "  worse" if worse > 0 else "  better"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.ratios", description=__doc__)
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    parser.add_argument("--write", action="store_true", help="make this run the baseline")
    parser.add_argument("--tokens", type=int, default=48, help="of each sequence")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found = step_ratios()
    found |= anyio.run(
        engine_ratios, options.tokens, options.repeats, backend_options={"use_uvloop": True}
    )
    baseline = json.loads(options.baseline.read_text()) if options.baseline.exists() else {}
    show(found, baseline.get("ratios", {}))
    if options.write:
        ratios = {name: round(ratio, 4) for name, ratio in found.items()}
        record = {"machine": platform.machine(), "ratios": ratios}
        options.baseline.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
