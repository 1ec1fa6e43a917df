"""The classic recipe: everybody at once, the same prompt and lengths, twice as many each time."""

from msgspec.structs import replace

from draftwerk_tools.loadtest.client.isolate import isolation_of
from draftwerk_tools.loadtest.client.loads import SweepStep, warming
from draftwerk_tools.loadtest.client.run import run_load
from draftwerk_tools.loadtest.client.sweep import run_step
from draftwerk_tools.loadtest.measure.knee import still_rises
from draftwerk_tools.loadtest.options import LoadTestOptions, ThroughputOptions
from draftwerk_tools.loadtest.results.curves import tokens_per_s
from draftwerk_tools.loadtest.results.environment import environment
from draftwerk_tools.loadtest.results.result import Run, Sweep


async def throughput(options: LoadTestOptions, asked: ThroughputOptions, argv: list[str]) -> Sweep:
    """Double the users until tokens per second rise no more; latency comes with each load."""
    began = environment(argv)
    isolation = await isolation_of(options, asked.isolate)
    found = Sweep(environment=began, over="concurrency", runs=[], notes=list(isolation.notes()))
    warm = isolation.placed(warming(options, asked.users_min))
    if (await run_load(replace(warm, label="warm-up"), argv)).interrupted:
        return found
    users = asked.users_min
    while users <= asked.users_max:
        at = isolation.placed(everybody(options, users))
        found.runs.append(await run_step(SweepStep(at, users, 0), argv))
        rates = [tokens_per_s(run) for run in found.runs]
        if found.runs[-1].interrupted or not still_rises(rates, asked.gain):
            break
        users *= 2
    found.notes.append(most(found.runs))
    return found


def everybody(options: LoadTestOptions, users: int) -> LoadTestOptions:
    """Return one wave of as many requests as users, alike but for their salts."""
    return replace(
        options,
        concurrency=users,
        rate=None,
        requests=users,
        duration_s=None,
        warmup=0,
        user_ramp_s=0.0,
        ignore_eos=True,
        prompt_spread=0.0,
        output_spread=0.0,
        prefix_groups=0,
        same_prompt=True,
        salted=True,
    )


def most(runs: list[Run]) -> str:
    """Return a sentence about the load with the most tokens per second."""
    best = max(runs, key=tokens_per_s)
    e2e = best.summary.latencies.e2e
    latency = f", {e2e.at['p50'] / 1e3:.2f} s median latency" if e2e else ""
    return f"most: {tokens_per_s(best):.1f} tokens/s with {best.load:g} at once{latency}"
