"""Several runs in a row: a sweep over loads, and the search for the highest that holds."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.measure.proportion import Proportion, wilson
from draftwerk.loadtest.measure.search import Bounds, Trial, highest, next_load
from draftwerk.loadtest.options import LoadTestOptions, Over, SearchOptions, SweepOptions
from draftwerk.loadtest.results.curves import knees
from draftwerk.loadtest.results.environment import environment
from draftwerk.loadtest.results.result import Run, Sweep
from draftwerk.loadtest.schedule.draw import DEFAULT_REQUESTS

ROUNDS_MAX = 3


class SweepStep(Struct, frozen=True):
    """One run of a sweep."""

    options: LoadTestOptions
    load: float
    repeat: int


def loads_of(text: str) -> list[float]:
    """Read `1,4,16`."""
    try:
        return [float(load) for load in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--loads: {text!r} is not a list of numbers") from error


def at_load(
    options: LoadTestOptions, over: Over, load: float, waves: int, repeat: int
) -> LoadTestOptions:
    """Set the load, enough requests for it, and a seed of its own.

    A new seed brings new prompts, lest one load profit from the prefixes the last one left cached.
    """
    seed = options.seed + 1000 * repeat + round(load * 7)
    options = replace(options, seed=seed, concurrency=None, rate=None)
    if over == "rate":
        return replace(options, rate=f"{load:g}")
    users = max(1, round(load))
    if options.duration_s is None:
        enough = max(options.requests or DEFAULT_REQUESTS // 5, waves * users)
        options = replace(options, requests=enough + options.warmup)
    return replace(options, concurrency=users)


def unseen(at: LoadTestOptions, seed: int, asked: int) -> LoadTestOptions:
    """Go on in one order of prompts after the `asked` ones before, if they can be counted.

    A file's prompts come again only when all have been asked: one order serves better than a new
    shuffle for each load, in which some come again early and are found in the server's cache.
    """
    return at if at.requests is None else replace(at, seed=seed, skip=asked)


def variants_of(options: LoadTestOptions, texts: Sequence[str]) -> list[LoadTestOptions]:
    """Read `NAME={…}`: the same options under another name, with more merged into the body."""
    return [_variant(options, text) for text in texts] or [options]


def steps(options: LoadTestOptions, asked: SweepOptions) -> Iterator[SweepStep]:
    """Order the runs: variants side by side at each load, in turned order every other repeat."""
    before = 0
    for repeat in range(asked.repeats):
        for load in loads_of(asked.loads):
            variants = variants_of(options, asked.variant)
            for variant in reversed(variants) if repeat % 2 else variants:
                at = at_load(variant, asked.over, load, asked.waves, repeat)
                yield SweepStep(unseen(at, options.seed, before), load, repeat)
            before += at_load(options, asked.over, load, asked.waves, repeat).requests or 0


async def sweep(options: LoadTestOptions, asked: SweepOptions, argv: list[str]) -> Sweep:
    """Run every step; an interruption ends the sweep and keeps what was measured."""
    began = environment(_now(), argv)
    runs: list[Run] = []
    for step in list(steps(options, asked)):
        runs.append(await _one(step, argv))
        if runs[-1].interrupted:
            break
    return Sweep(environment=began, over=asked.over, runs=runs, knees=knees(runs))


async def search(options: LoadTestOptions, asked: SearchOptions, argv: list[str]) -> Sweep:
    """Find the highest load at which the wanted share of requests keeps the SLOs."""
    if not options.slo:
        raise ValueError("search needs at least one --slo")
    began = environment(_now(), argv)
    bounds = Bounds(asked.low, asked.high, asked.tolerance, asked.over == "concurrency")
    runs: list[Run] = []
    trials: list[Trial] = []
    notes: list[str] = []
    while (load := next_load(trials, bounds)) is not None:
        tried = await _try(options, asked, load, argv)
        runs.extend(tried)
        if tried[-1].interrupted:
            break
        share = pooled(tried)
        trials.append(Trial(load, share.share >= asked.attain))
        notes.append(_verdict(asked, load, share))
    found = highest(trials)
    if found is None:
        notes.append(f"not even {asked.over} {asked.low:g} holds")
    return Sweep(environment=began, over=asked.over, runs=runs, held=found, notes=notes)


def pooled(runs: Sequence[Run]) -> Proportion:
    """Join the goodput of runs at one load."""
    shares = [run.summary.goodput.share for run in runs if run.summary.goodput]
    return wilson(sum(share.met for share in shares), sum(share.n for share in shares))


def decided(share: Proportion, attain: float) -> bool:
    """Whether the interval leaves no doubt on which side of the target the share is."""
    return not share.low < attain <= share.high


async def _one(step: SweepStep, argv: list[str]) -> Run:
    name = f"{step.options.label} {step.load:g}".strip()
    run = await run_load(replace(step.options, label=name), argv)
    run.label, run.load, run.repeat = step.options.label, step.load, step.repeat
    return run


async def _try(
    options: LoadTestOptions, asked: SearchOptions, load: float, argv: list[str]
) -> list[Run]:
    """Run at one load, again while the share is too close to the target to call."""
    runs: list[Run] = []
    for repeat in range(ROUNDS_MAX):
        at = at_load(options, asked.over, load, asked.waves, repeat)
        runs.append(await _one(SweepStep(at, load, repeat), argv))
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


def _variant(options: LoadTestOptions, text: str) -> LoadTestOptions:
    name, _, fields = text.partition("=")
    try:
        mine = msgspec.json.decode(fields or "{}", type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ValueError(f"--variant {text!r}: {error}") from error
    common = msgspec.json.decode(options.extra or "{}", type=dict[str, object])
    return replace(options, label=name, extra=msgspec.json.encode(common | mine).decode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
