"""The runs of a sweep: the loads, the variants, and the order they come in."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from draftwerk_tools.loadtest.options import LoadTestOptions, Over, SweepOptions
from draftwerk_tools.loadtest.schedule.draw import DEFAULT_REQUESTS
from draftwerk_tools.loadtest.schedule.isolation import Isolation

WARM_TOKENS = 32
"""Output tokens of a warm-up: long enough that every size of batch comes up once."""
WARM_PROMPT_TOKENS = 64
WARM_USERS_MAX = 64


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


def at_load(options: LoadTestOptions, over: Over, load: float, waves: int) -> LoadTestOptions:
    """Set the load, and enough requests for it."""
    options = replace(options, concurrency=None, rate=None)
    if over == "rate":
        return replace(options, rate=f"{load:g}")
    users = max(1, round(load))
    if options.duration_s is None:
        enough = max(options.requests or DEFAULT_REQUESTS // 5, waves * users)
        options = replace(options, requests=enough + options.warmup)
    return replace(options, concurrency=users)


def variants_of(options: LoadTestOptions, texts: Sequence[str]) -> list[LoadTestOptions]:
    """Read `NAME={…}`: the same options under another name, with more merged into the body."""
    return [_variant(options, text) for text in texts] or [options]


def steps(
    options: LoadTestOptions, asked: SweepOptions, isolation: Isolation
) -> Iterator[SweepStep]:
    """Order the runs: variants side by side at each load, in turned order every other repeat."""
    variants = variants_of(options, asked.variant)
    for repeat in range(asked.repeats):
        for load in loads_of(asked.loads):
            for index, variant in enumerate(reversed(variants) if repeat % 2 else variants):
                at = at_load(variant, asked.over, load, asked.waves)
                yield SweepStep(isolation.placed(at, side_by_side=index > 0), load, repeat)


def warming(options: LoadTestOptions, users: float) -> LoadTestOptions:
    """Return an uncounted run that reaches the load, so that no run pays for the first steps."""
    count = min(max(1, round(users)), WARM_USERS_MAX)
    return replace(
        options,
        workload="synthetic",
        prompt_tokens=WARM_PROMPT_TOKENS,
        max_tokens=WARM_TOKENS,
        token_ids=False,
        warmup=0,
        rate=None,
        duration_s=None,
        slo=[],
        concurrency=count,
        requests=count,
    )


def _variant(options: LoadTestOptions, text: str) -> LoadTestOptions:
    name, _, fields = text.partition("=")
    try:
        mine = msgspec.json.decode(fields or "{}", type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ValueError(f"--variant {text!r}: {error}") from error
    common = msgspec.json.decode(options.extra or "{}", type=dict[str, object])
    return replace(options, label=name, extra=msgspec.json.encode(common | mine).decode())
