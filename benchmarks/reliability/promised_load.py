"""What a real server keeps of its promises, by policy: pauses of many users, and the highest rate.

    python -m benchmarks.reliability.promised_load users [--users 16] [--repeats 3] [--dtype int8]
    python -m benchmarks.reliability.promised_load search [--low 1.5] [--requests 60] [--dtype int8]

One server for each way is started: `none` without `--slo`, and the policies with
`--slo ttft=1s --slo tpot=50ms`, or what `--promise` says. They are measured in turns, in an order
that turns too, while the others are idle. Prompts have 400 tokens and answers 64, both drawn within
half of that.

`users` prints, for each run with so many users at once,

    tok/s     generated, while all users are there
    TTFT      p50 and p99, s
    TPOT      p50 and p99 of a text's mean time between tokens, ms
    pause     p50 and p99 of a text's longest pause, and p99 of all pauses, ms
    goodput   requests a second that were kept both times, and their share

and the medians over the repeats. `search` runs `draftwerk loadtest search` against each, and prints
the highest rate at which 95 % are kept theirs, and how each rate fared.
"""

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median

from msgspec.structs import replace

from benchmarks.support.server import draftwerk
from draftwerk.loadtest.client.isolate import isolation_of
from draftwerk.loadtest.client.loads import warming
from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.client.search import search
from draftwerk.loadtest.measure.quantiles import quantiles
from draftwerk.loadtest.options import LoadTestOptions, SearchOptions
from draftwerk.loadtest.results.result import Run

PROMISE = ("ttft=1s", "tpot=50ms")
WAYS = ("none", "serve", "last", "refuse")
HEADER = (
    f"{'':8s}   tok/s  TTFT p50    p99  TPOT p50    p99  pause p50    p99    all  goodput  share"
)
Figures = tuple[float, ...]
NOTHING: Figures = (0.0,) * 10
"""Of a run in which nobody was answered, as a policy may refuse everybody."""


def options_of(way: str, dtype: str, promise: Sequence[str]) -> list[str]:
    """Return a server's options."""
    promised = [word for each in promise for word in ("--slo", each)]
    policy = [] if way == "none" else [*promised, "--slo-policy", way]
    return ["--spare", "off", "--dtype", dtype, *policy]


def load_of(given: argparse.Namespace, url: str) -> LoadTestOptions:
    """Return what is asked, and what counts as kept."""
    return LoadTestOptions(
        url=url,
        prompt_tokens=given.prompt,
        prompt_spread=0.5,
        max_tokens=given.answer,
        output_spread=0.5,
        ignore_eos=True,
        continuous_usage=True,
        slo=list(given.promise),
        scrape=False,
        progress=False,
        seed=given.seed,
    )


def figures(run: Run) -> Figures:
    """Return a run's line of the table."""
    rows = [row for row in run.rows if row.ok and not row.warmup]
    longest = quantiles((max(row.gaps_s(), default=None) for row in rows), 1e3)
    summary = run.summary
    found, good, flow = summary.latencies, summary.goodput, summary.throughput
    if good is None:
        raise RuntimeError(f"nothing was asked: {summary.outcomes}")
    if not (found.ttft and found.tpot and found.gap and longest):
        return NOTHING
    return (
        flow.steady_output_tokens_per_s or flow.output_tokens_per_s,
        found.ttft.at["p50"] / 1e3,
        found.ttft.at["p99"] / 1e3,
        found.tpot.at["p50"],
        found.tpot.at["p99"],
        longest.at["p50"],
        longest.at["p99"],
        found.gap.at["p99"],
        good.per_s,
        good.share.share,
    )


def line(name: str, found: Figures) -> str:
    """Return it as text."""
    rate, first, first_99, token, token_99, pause, pause_99, every, good, share = found
    return (
        f"{name:8s} {rate:7.1f} {first:9.2f} {first_99:6.2f} {token:9.1f} {token_99:6.1f} "
        f"{pause:10.1f} {pause_99:6.1f} {every:6.1f} {good:8.2f} {share:6.3f}"
    )


async def users(given: argparse.Namespace, urls: Mapping[str, str]) -> None:
    """Measure every way with so many users, in turns."""
    found: dict[str, list[Figures]] = defaultdict(list)
    isolation = await isolation_of(load_of(given, min(urls.values())), "auto")
    print(HEADER, flush=True)
    for repeat in range(given.repeats):
        for index, way in enumerate(turned([*urls], repeat)):
            load = load_of(given, urls[way])
            if not repeat:
                await warm_up(given, load)
            count = given.users * (given.waves + 1)
            load = replace(
                load, concurrency=given.users, requests=count, warmup=given.users, user_ramp_s=2.0
            )
            run = await run_load(isolation.placed(load, side_by_side=index > 0), [])
            if run.interrupted:
                return
            found[way].append(figures(run))
            print(line(way, found[way][-1]), flush=True)
    print("medians")
    for way, runs in found.items():
        print(line(way, tuple(median(column) for column in zip(*runs, strict=True))), flush=True)


async def searches(given: argparse.Namespace, urls: Mapping[str, str]) -> None:
    """Search for every way's highest rate, in turns."""
    asked = SearchOptions(over="rate", low=given.low, tolerance=given.tolerance)
    for repeat in range(given.repeats):
        for way in turned([*urls], repeat):
            load = replace(load_of(given, urls[way]), seed=given.seed + repeat)
            await warm_up(given, load)
            found = await search(replace(load, requests=given.requests), asked, [])
            print(f"{way:8s} {found.held or 0.0:.2f} requests/s", flush=True)
            for note in found.notes:
                print(f"         {note}", flush=True)
            if any(run.interrupted for run in found.runs):
                return


async def warm_up(given: argparse.Namespace, load: LoadTestOptions) -> None:
    """Ask what is not counted. Raises KeyboardInterrupt where that was cut short."""
    if (await run_load(warming(load, given.users), [])).interrupted:
        raise KeyboardInterrupt


def turned(ways: Sequence[str], repeat: int) -> Sequence[str]:
    """Return the order of a repeat: every other one is backwards."""
    return ways[::-1] if repeat % 2 else ways


async def measure(given: argparse.Namespace) -> None:
    """Start the servers, and measure."""
    async with AsyncExitStack() as servers:
        urls: dict[str, str] = {}
        for way in given.ways:
            server = draftwerk(*options_of(way, given.dtype, given.promise))
            urls[way] = (await servers.enter_async_context(server)).url
        await (users if given.command == "users" else searches)(given, urls)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["users", "search"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--promise", nargs="+", default=[*PROMISE], help="to servers and of loads")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--prompt", type=int, default=400, help="tokens, the mean")
    parser.add_argument("--answer", type=int, default=64, help="tokens, the mean")
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--waves", type=int, default=4, help="requests of each user that count")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--low", type=float, default=1.5, help="requests/s to begin with")
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--requests", type=int, default=60, help="at each rate")
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
