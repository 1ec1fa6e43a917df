"""The highest rate at which a promise is kept: with `--slo`, without it, and by llama.cpp's server.

    python -m benchmarks.reliability.promised_rates --model FILE.gguf [--peer LLAMA_SERVER]

All servers stand side by side with the same file and are asked in turn: requests with prompts and
answers of unequal length come by chance, so many a second. Each server's own rate goes up where
`--attain` of the requests had their first token and their mean time per token as promised, and down
where they had not, by halves of what is left. The requests of a step are the same for all servers
but for the pace at which they come, and no other step has them. Ways:

    slo         as `draftwerk serve --slo`
    none        as `draftwerk serve` starts
    throughput  with `--prefer throughput`, which bounds no pauses
    llama.cpp   its server, with as many places as requests are under way at most
"""

import argparse
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from sys import stderr

from msgspec.structs import replace

from benchmarks.support.bench import ResultTable, parser, run, show
from benchmarks.support.llama_cpp import server_options
from benchmarks.support.server import draftwerk
from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.client.search import pooled
from draftwerk.loadtest.measure.proportion import Proportion
from draftwerk.loadtest.measure.search import Bounds, Trial, highest, next_load
from draftwerk.loadtest.options import LoadTestOptions
from draftwerk.loadtest.results.result import Run
from draftwerk.loadtest.server.launcher import free_port, serving

PEER = "llama.cpp"
WAYS = ("slo", "none", "throughput", PEER)
PLACES = 32
"""Of the peer's server."""
WARM_SEED = 10_000
"""Of requests that no step has."""
WARM_REQUESTS = 16


@asynccontextmanager
async def standing(given: argparse.Namespace, way: str) -> AsyncGenerator[str]:
    """Keep a way's server running; yields its address."""
    if way == PEER:
        port = free_port()
        # No prompt comes twice: states that the peer would keep of past ones cost it time alone.
        more = [*server_options(PLACES), "--cache-ram", "0"]
        command = [given.peer, "-m", given.model, "--port", str(port), *more]
        async with serving(command, f"http://127.0.0.1:{port}") as server:
            yield server.url
        return
    promise = [word for one in given.slo for word in ("--slo", one)]
    more = {"slo": promise, "none": [], "throughput": ["--prefer", "throughput"]}[way]
    model = [given.model] if given.model else []
    async with draftwerk(*model, "--dtype", given.dtype, "--spare", "off", *more) as server:
        yield server.url


def load_of(given: argparse.Namespace, url: str, rate: float, seed: int) -> LoadTestOptions:
    """Return the options of one run."""
    return LoadTestOptions(
        url=url,
        endpoint="completions",
        rate=f"{rate:g}",
        requests=given.count,
        seed=seed,
        prompt_tokens=given.prompt,
        prompt_spread=given.spread,
        max_tokens=given.tokens,
        output_spread=given.spread,
        temperature=0.7,
        ignore_eos=True,
        slo=given.slo,
        progress=False,
        scrape=False,
    )


async def measure(given: argparse.Namespace) -> dict[str, list[tuple[float, Proportion]]]:
    """Return the rates that were tried of each way, and the share that was kept."""
    ways = [way for way in given.ways if way != PEER or given.peer]
    tried: dict[str, list[tuple[float, Proportion]]] = {way: [] for way in ways}
    async with AsyncExitStack() as stack:
        urls = {way: await stack.enter_async_context(standing(given, way)) for way in ways}
        for url in urls.values():
            warm = load_of(given, url, given.low, WARM_SEED)
            await run_load(replace(warm, requests=WARM_REQUESTS), [])
        for step in range(given.steps):
            for way in reversed(ways) if step % 2 else ways:
                rate = next_load(trials(given, tried[way]), bounds(given))
                if rate is not None:
                    found = await run_load(load_of(given, urls[way], rate, given.seed + step), [])
                    tried[way].append((rate, pooled([found])))
                    print(f"{way} at {rate:.2f}: {times_of(found)}", file=stderr, flush=True)
    return tried


def times_of(found: Run) -> str:
    """Return what was kept in a run, and its times. Raises RuntimeError where it has none."""
    latencies = found.summary.latencies
    if latencies.tpot is None:
        raise RuntimeError("the replies have no text, so that nothing is timed")
    times = {"first token": latencies.ttft, "time per token": latencies.tpot}
    parts = [f"{pooled([found]).share:.1%} kept"]
    parts += [
        f"{name} {one.at['p50']:.0f} ms, p95 {one.at['p95']:.0f}"
        for name, one in times.items()
        if one
    ]
    return "; ".join(parts)


def bounds(given: argparse.Namespace) -> Bounds:
    return Bounds(given.low, given.high, given.tolerance, whole=False)


def trials(given: argparse.Namespace, tried: Sequence[tuple[float, Proportion]]) -> list[Trial]:
    return [Trial(rate, share.share >= given.attain) for rate, share in tried]


def told(tried: Mapping[str, Sequence[tuple[float, Proportion]]]) -> list[str]:
    """Return a line for each way: what was kept at each rate."""
    return [
        f"{way}: " + ", ".join(f"{share.share:.1%} at {rate:.2f}" for rate, share in sorted(found))
        for way, found in tried.items()
    ]


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each way."""
    options = parser(__doc__, model="", dtype="auto", count=60, tokens=64, seed=1)
    options.add_argument("--slo", nargs="+", default=["ttft=1s", "tpot=50ms"])
    options.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    options.add_argument("--peer", type=Path, help="llama.cpp's server; without it, it stays out")
    options.add_argument("--prompt", type=int, default=400, help="words of a prompt, the mean")
    options.add_argument("--spread", type=float, default=0.75, help="of lengths, about the mean")
    options.add_argument("--attain", type=float, default=0.95)
    options.add_argument("--low", type=float, default=2.0, help="requests a second, at first")
    options.add_argument("--high", type=float, default=64.0, help="at most")
    options.add_argument("--tolerance", type=float, default=0.05, help="where the search ends")
    options.add_argument("--steps", type=int, default=6, help="of the search, at most")
    given = options.parse_args(argv)
    if given.peer and not given.model:
        options.error("--peer needs a file that both can read: --model FILE.gguf")
    tried = run(measure, given)
    rates = {way: highest(trials(given, found)) for way, found in tried.items()}
    first = next(iter(rates.values()))
    found = ResultTable(["way", "requests/s", "of these, the first has"])
    for way, rate in rates.items():
        found.add(way, rate or "none", first / rate if first and rate else "-")
    found.notes += told(tried)
    return found


if __name__ == "__main__":
    show(table)
