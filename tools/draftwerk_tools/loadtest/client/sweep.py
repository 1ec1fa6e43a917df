"""Several runs in a row, over loads and variants."""

from msgspec.structs import replace

from draftwerk_tools.loadtest.client.isolate import isolation_of
from draftwerk_tools.loadtest.client.loads import SweepStep, loads_of, steps, variants_of, warming
from draftwerk_tools.loadtest.client.run import run_load
from draftwerk_tools.loadtest.options import LoadTestOptions, SweepOptions
from draftwerk_tools.loadtest.results.curves import knees
from draftwerk_tools.loadtest.results.environment import environment
from draftwerk_tools.loadtest.results.result import Run, Sweep


async def sweep(options: LoadTestOptions, asked: SweepOptions, argv: list[str]) -> Sweep:
    """Run every step; an interruption ends the sweep and keeps what was measured."""
    began = environment(argv)
    isolation = await isolation_of(options, asked.isolate)
    planned = list(steps(options, asked, isolation))
    found = Sweep(
        environment=began,
        over=asked.over,
        runs=[],
        variants=[variant.label for variant in variants_of(options, asked.variant)],
        notes=list(isolation.notes()),
    )
    warm = isolation.placed(warming(options, max(loads_of(asked.loads))))
    if not (await run_load(replace(warm, label="warm-up"), argv)).interrupted:
        for step in planned:
            found.runs.append(await run_step(step, argv))
            if found.runs[-1].interrupted:
                break
    found.knees = knees(found.runs)
    return found


async def run_step(step: SweepStep, argv: list[str]) -> Run:
    """Run one step; the result has its load and repeat."""
    name = f"{step.options.label} {step.load:g}".strip()
    run = await run_load(replace(step.options, label=name), argv)
    run.label, run.load, run.repeat = step.options.label, step.load, step.repeat
    return run
