"""The search for the highest load that keeps the SLOs."""

from collections.abc import Sequence

from draftwerk_tools.loadtest.client.isolate import isolation_of
from draftwerk_tools.loadtest.client.loads import SweepStep, at_load
from draftwerk_tools.loadtest.client.sweep import run_step
from draftwerk_tools.loadtest.measure.proportion import Proportion, wilson
from draftwerk_tools.loadtest.measure.search import Bounds, Trial, highest, next_load
from draftwerk_tools.loadtest.options import LoadTestOptions, SearchOptions
from draftwerk_tools.loadtest.results.environment import environment
from draftwerk_tools.loadtest.results.result import Run, Sweep
from draftwerk_tools.loadtest.schedule.isolation import Isolation

ROUNDS_MAX = 3


async def search(options: LoadTestOptions, asked: SearchOptions, argv: list[str]) -> Sweep:
    """Find the highest load at which the given share of requests keeps the SLOs."""
    if not options.slo:
        raise ValueError("search needs at least one --slo")
    began = environment(argv)
    isolation = await isolation_of(options, asked.isolate)
    bounds = Bounds(asked.low, asked.high, asked.tolerance, asked.over == "concurrency")
    runs: list[Run] = []
    trials: list[Trial] = []
    notes: list[str] = []
    while (load := next_load(trials, bounds)) is not None:
        tried = await _try(options, asked, load, isolation, argv)
        runs.extend(tried)
        if tried[-1].interrupted:
            break
        share = pooled(tried)
        trials.append(Trial(load, share.share >= asked.attain))
        notes.append(_verdict(asked, load, share))
    found = highest(trials)
    if found is None:
        least = min((trial.load for trial in trials), default=asked.low)
        notes.append(f"not even {asked.over} {least:g} holds")
    notes.extend(isolation.notes())
    return Sweep(environment=began, over=asked.over, runs=runs, held=found, notes=notes)


def pooled(runs: Sequence[Run]) -> Proportion:
    """Join the goodput of runs at one load."""
    shares = [run.summary.goodput.share for run in runs if run.summary.goodput]
    return wilson(sum(share.met for share in shares), sum(share.n for share in shares))


def decided(share: Proportion, attain: float) -> bool:
    """Whether the interval leaves no doubt on which side of the target the share is."""
    return not share.low < attain <= share.high


async def _try(
    options: LoadTestOptions,
    asked: SearchOptions,
    load: float,
    isolation: Isolation,
    argv: list[str],
) -> list[Run]:
    """Run at one load, again while the share is too close to the target to call."""
    runs: list[Run] = []
    for repeat in range(ROUNDS_MAX):
        at = isolation.placed(at_load(options, asked.over, load, asked.waves))
        runs.append(await run_step(SweepStep(at, load, repeat), argv))
        if runs[-1].interrupted or decided(pooled(runs), asked.attain):
            break
    return runs


def _verdict(asked: SearchOptions, load: float, share: Proportion) -> str:
    word = "holds" if share.share >= asked.attain else "does not hold"
    doubt = "" if decided(share, asked.attain) else ", too close to be sure"
    return (
        f"{asked.over} {load:g} {word}: {share.share:.1%} of {share.n} within the SLOs "
        f"({share.low:.1%} to {share.high:.1%}){doubt}"
    )
