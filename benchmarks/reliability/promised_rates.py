"""The highest rate at which a promise is kept: with `--slo`, without it, and by llama.cpp's server.

    python -m benchmarks.reliability.promised_rates --model FILE.gguf [--peer LLAMA_SERVER]
        [--questions spec_bench.jsonl] [--ways slo throughput] [--rates 4 5] [--trials FILE]

All servers stand side by side with the same file and are asked in turn: requests with answers of
unequal length come by chance, so many a second. Each server's own rate goes up where `--attain` of
the requests had their first token and their mean time per token as promised, and down where they
had not, by halves of what is left. The requests of a seed are the same for all servers and rates
but for the pace at which they come; no server finds any in its cache. Ways:

    slo         as `draftwerk serve --slo`
    none        as `draftwerk serve` starts, which bounds pauses
    throughput  with `--prefer throughput`, which bounds none
    llama.cpp   its server, with as many places as requests are under way at most

With `--trials` the file's earlier trials of these requests are gone on from, and new ones are added
to it, so that ways and seeds may be measured one by one: the table has all of them.
"""

import argparse
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from pathlib import Path
from statistics import geometric_mean
from sys import stderr
from time import perf_counter

from msgspec.structs import replace

from benchmarks.support.bench import (
    MeasuredLine,
    ResultTable,
    add_line,
    known_lines,
    parser,
    run,
    show,
)
from benchmarks.support.llama_cpp import server_options
from benchmarks.support.server import draftwerk
from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.client.search import pooled
from draftwerk.loadtest.measure.search import Bounds, Trial, highest, next_load
from draftwerk.loadtest.measure.slo import meets, parse_slo
from draftwerk.loadtest.options import LoadTestOptions
from draftwerk.loadtest.results.result import Run
from draftwerk.loadtest.server.launcher import free_port, serving
from draftwerk.machine.host import die_with_parent

PEER = "llama.cpp"
WAYS = ("slo", "none", "throughput", PEER)
PLACES = 32
"""Of the peer's server."""
WARM_SEED = 10_000
"""Of requests that no step has."""
WARM_REQUESTS, WARM_USERS = 8, 4
LATE_SHOWN = 8
"""First tokens that were late, of a trial."""


class RateTrial(MeasuredLine, frozen=True):
    """What was kept at a rate."""

    way: str
    seed: int
    rate: float
    kept: int
    count: int

    @property
    def share(self) -> float:
        return self.kept / self.count


@asynccontextmanager
async def standing(given: argparse.Namespace, way: str) -> AsyncGenerator[str]:
    """Keep a way's server running; yields its address."""
    if way == PEER:
        port = free_port()
        command = [given.peer, "-m", given.model, "--port", str(port), *server_options(PLACES)]
        command += ["--cache-ram", "0"]  # states that it would keep of past prompts cost it time
        url = f"http://127.0.0.1:{port}"
        async with serving(command, url, prepare=die_with_parent) as server:
            yield server.url
        return
    promise = [word for one in given.slo for word in ("--slo", one)]
    more = {"slo": promise, "none": [], "throughput": ["--prefer", "throughput"]}[way]
    model = [given.model] if given.model else []
    async with draftwerk(*model, "--dtype", given.dtype, "--spare", "off", *more) as server:
        yield server.url


def load_of(given: argparse.Namespace, way: str, url: str, rate: float) -> LoadTestOptions:
    """Return the options of one run."""
    return LoadTestOptions(
        url=url,
        endpoint="completions",
        workload=f"spec-bench:{given.questions}" if given.questions else "synthetic",
        categories=given.categories,
        rate=f"{rate:g}",
        requests=given.count,
        seed=given.seed,
        prompt_tokens=given.prompt,
        prompt_spread=given.spread,
        max_tokens=given.tokens,
        output_spread=given.spread,
        temperature=0.7,
        ignore_eos=True,
        salted=way != PEER,
        extra='{"cache_prompt": false}' if way == PEER else None,
        slo=given.slo,
        progress=False,
        scrape=False,
    )


async def measure(given: argparse.Namespace, known: Sequence[RateTrial]) -> list[RateTrial]:
    """Return the rates that were tried of each way, `known` ones first."""
    begun = perf_counter()
    ways = [way for way in given.ways if way != PEER or given.peer]
    tried = [*known]
    async with AsyncExitStack() as stack:
        urls = {way: await stack.enter_async_context(standing(given, way)) for way in ways}
        for way, url in urls.items():
            await run_load(warm_up(load_of(given, way, url, given.low)), [])
        for step in range(len(given.rates) or given.steps):
            for way in reversed(ways) if step % 2 else ways:
                rate = next_rate(given, trials(given, tried, way, given.seed), step)
                if rate is not None and perf_counter() - begun < given.seconds:
                    found = await run_load(load_of(given, way, urls[way], rate), [])
                    tried.append(trial(given, way, rate, found))
    return tried


def warm_up(load: LoadTestOptions) -> LoadTestOptions:
    """Return what a server is asked before it is measured."""
    return replace(load, rate=None, concurrency=WARM_USERS, requests=WARM_REQUESTS, seed=WARM_SEED)


def trial(given: argparse.Namespace, way: str, rate: float, found: Run) -> RateTrial:
    """Tell of a run, and return what it found. Raises RuntimeError where it was cut short."""
    if found.interrupted:
        raise RuntimeError("the run was cut short")
    print(f"{way} at {rate:.2f}: {times_of(given, found)}", file=stderr, flush=True)
    share = pooled([found])
    one = RateTrial(requests_of(given), way, given.seed, rate, share.met, share.n)
    add_line(given.trials, one)
    return one


def times_of(given: argparse.Namespace, found: Run) -> str:
    """Return what was kept in a run, what was not, and its times."""
    latencies = found.summary.latencies
    parts = [f"{pooled([found]).share:.1%} kept"]
    for one in given.slo:
        missed = [row for row in found.rows if not meets(row, [parse_slo(one)])]
        parts.append(f"{len(missed)} missed {one}")
        if one.startswith("ttft"):
            late = sorted(row.ttft_s() or inf for row in missed)
            parts[-1] += f" ({' '.join(f'{seconds:.2f}' for seconds in late[:LATE_SHOWN])})"
    times = {"first token": latencies.ttft, "time per token": latencies.tpot}
    parts += [
        f"{name} {one.at['p50']:.0f} ms, p95 {one.at['p95']:.0f}"
        for name, one in times.items()
        if one
    ]
    return "; ".join(parts)


def next_rate(given: argparse.Namespace, tried: Sequence[Trial], step: int) -> float | None:
    """Return the rate of a step; None where it is known, or the search has ended."""
    if not given.rates:
        return next_load(tried, Bounds(given.low, given.high, given.tolerance, whole=False))
    rate = given.rates[step]
    return None if rate in (one.load for one in tried) else rate


def requests_of(given: argparse.Namespace) -> str:
    """Return what tells these requests and promises from others, but for the seed."""
    asked = (
        *(given.model, given.dtype, given.questions or given.prompt, given.categories),
        *(given.tokens, given.spread, given.count, *given.slo),
    )
    return " ".join(map(str, asked))


def trials(
    given: argparse.Namespace, tried: Iterable[RateTrial], way: str, seed: int
) -> list[Trial]:
    """Return which rates of a way hold."""
    return [
        Trial(one.rate, one.share >= given.attain)
        for one in tried
        if (one.way, one.seed) == (way, seed)
    ]


def told(tried: Sequence[RateTrial]) -> list[str]:
    """Return a line for each way and seed: what was kept at each rate."""
    searches = dict.fromkeys((one.way, one.seed) for one in tried)
    return [
        f"{way}, seed {seed}: "
        + ", ".join(
            f"{one.share:.1%} at {one.rate:.2f}"
            for one in sorted(tried, key=lambda one: one.rate)
            if (one.way, one.seed) == (way, seed)
        )
        for way, seed in searches
    ]


def options() -> argparse.ArgumentParser:
    made = parser(__doc__, model="", dtype="auto", questions=None, count=60, tokens=64, seed=1)
    made.add_argument("--slo", nargs="+", default=["ttft=1s", "tpot=50ms"])
    made.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    made.add_argument("--peer", type=Path, help="llama.cpp's server; without it, it stays out")
    made.add_argument("--categories", default="", help="of the questions, by commas; or all")
    made.add_argument("--prompt", type=int, default=400, help="words, the mean; without questions")
    made.add_argument("--spread", type=float, default=0.75, help="of lengths, about the mean")
    made.add_argument("--attain", type=float, default=0.95)
    made.add_argument("--low", type=float, default=2.0, help="requests a second, at first")
    made.add_argument("--high", type=float, default=64.0, help="at most")
    made.add_argument("--rates", nargs="+", type=float, default=[], help="those alone: no search")
    made.add_argument("--tolerance", type=float, default=0.05, help="where the search ends")
    made.add_argument("--steps", type=int, default=6, help="of the search, at most")
    made.add_argument("--seconds", type=float, default=inf, help="after which no step begins")
    made.add_argument("--trials", type=Path, help="JSON lines: earlier trials, and new ones")
    return made


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each way, over the seeds that were tried."""
    given = options().parse_args(argv)
    if given.peer and not given.model:
        options().error("--peer needs a file that both can read: --model FILE.gguf")
    tried = run(measure, given, known_lines(given.trials, RateTrial, requests_of(given)))
    ways = dict.fromkeys(one.way for one in tried)
    seeds = dict.fromkeys(one.seed for one in tried)
    rates = {
        way: {seed: rate for seed in seeds if (rate := highest(trials(given, tried, way, seed)))}
        for way in ways
    }
    first = next(iter(rates.values()))
    found = ResultTable(["way", "requests/s", "of these, the first has"])
    for way, by_seed in rates.items():
        both = [first[seed] / by_seed[seed] for seed in first.keys() & by_seed.keys()]
        mean = geometric_mean(by_seed.values()) if by_seed else "none"
        found.add(way, mean, geometric_mean(both) if both else "-")
    found.notes += told(tried)
    return found


if __name__ == "__main__":
    show(table)
