"""How many requests are kept what they were promised, by load and policy, on virtual time.

    python -m benchmarks.speed.slo_policies [--slo ttft=1s,tpot=50ms] [--rates 1 2 3 4] [--users 16]

The real scheduler runs over a device of which only the time matters: a step takes `--step-ms`,
and `--token-ms` for each token whose logits are computed, 0.8 of that for one of a prompt, and
`--attention` times what attention takes by the roofline of the default model in int8. Requests
come by chance, so many a second, or each time that one of so many users has an answer; prompts and
answers have log-normal lengths. A row of the table is a load under one policy: the requests a
second that were kept both times. Below it is the highest rate at which `--attain` of them are.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from math import exp
from random import Random
from statistics import mean, quantiles

from benchmarks.support.bench import ResultTable, parser, show
from benchmarks.support.virtual_server import ROOFLINE, VirtualServer, VirtualText
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.options.service.lengths import TextLengths
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.requests.slo import NO_SLO, Slo, SloPolicy, read_slo
from draftwerk.speculative.scheduler import RoundLimits, Scheduler

BLOCK, BLOCKS, CONTEXT = 16, 4096, 4096
PROMPT_SHARE = 0.8
"""What a token without logits costs, of one with them."""
SEEDS = (1, 8, 64, 256)
"""Sizes of the steps that are measured at start."""
POLICIES: tuple[SloPolicy | None, ...] = (None, "serve", "last", "refuse")
"""None stands for a server without `--slo`."""
HALVINGS = 6


def step_ms(given: argparse.Namespace, load: StepLoad) -> float:
    """Return what a step takes."""
    equal = load.outputs + PROMPT_SHARE * (load.tokens - load.outputs)
    context = ROOFLINE.attention_ms(load) + ROOFLINE.kv_ms(load)
    return given.step_ms + given.token_ms * equal + given.attention * context


def texts(given: argparse.Namespace, rate: float, repeat: int) -> list[VirtualText]:
    """Return requests of log-normal lengths that come so many a second."""
    rng, now_s = Random(given.seed + repeat), 0.0
    found: list[VirtualText] = []
    for _ in range(given.requests):
        now_s += rng.expovariate(rate)
        prompt = _length(rng, given.prompt, given.spread)
        found.append(VirtualText(prompt, _length(rng, given.answer, given.spread), now_s))
    return found


def _length(rng: Random, median: float, spread: float) -> int:
    return max(2, min(CONTEXT // 2, round(median * exp(rng.gauss(0.0, spread)))))


def served(
    given: argparse.Namespace,
    policy: SloPolicy | None,
    rate: float,
    users: int = 0,
    repeat: int = 0,
) -> tuple[VirtualServer, list[VirtualText]]:
    """Serve the requests; what is returned has their times."""
    slo = NO_SLO if policy is None else read_slo(given.slo)
    requests = texts(given, rate, repeat)
    for each in requests:
        each.slo = slo
    measured = [(size, step_ms(given, StepLoad(size, size))) for size in SEEDS]
    scheduler = Scheduler(
        CachePools(BlockPool(BLOCKS, BLOCK)),
        RoundLimits(
            draft_max=0,
            slo=slo,
            slo_policy=policy or "serve",
            pause_s=given.pause_ms / 1e3,
        ),
        cost=StepCost(measured, ROOFLINE if given.attention else None),
        policy=partial(ServicePolicy, lengths=TextLengths()),
    )
    server = VirtualServer(scheduler, requests, lambda load: step_ms(given, load), CONTEXT, users)
    server.run()
    return server, requests


def kept(requests: list[VirtualText], slo: Slo) -> int:
    """Return how many requests were kept both times."""
    return sum(not each.is_refused and slo.is_kept(each.first_s, each.token_s) for each in requests)


def add_row(
    found: ResultTable, given: argparse.Namespace, policy: SloPolicy | None, rate: float
) -> None:
    """Add what became of the requests at one rate, or of so many users."""
    server, requests = served(given, policy, rate, given.users)
    answered = [each for each in requests if not each.is_refused]
    good = kept(requests, read_slo(given.slo))
    firsts = quantiles((each.first_s for each in answered), n=100)
    tpots = quantiles((1e3 * each.token_s for each in answered), n=100)
    pauses = quantiles((1e3 * each.pause_s for each in answered), n=100)
    found.add(
        f"{given.users} users" if given.users else f"{rate:g} requests/s",
        policy or "none",
        good / server.now_s,
        good / len(requests),
        server.scheduler.stats.generated_tokens / server.now_s,
        (firsts[49], firsts[98]),
        tpots[98],
        pauses[98],
    )


def highest_rate(given: argparse.Namespace, policy: SloPolicy | None, repeat: int) -> float:
    """Return the highest rate at which enough requests are kept theirs, by halving."""
    slo, low, high = read_slo(given.slo), 0.0, 2.0 * max(given.rates)
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        _, requests = served(given, policy, rate, repeat=repeat)
        if kept(requests, slo) >= given.attain * len(requests):
            low = rate
        else:
            high = rate
    return low


def options() -> argparse.ArgumentParser:
    made = parser(__doc__, users=[0], seed=1, repeats=1)
    made.add_argument("--slo", nargs="+", default=["ttft=1s,tpot=50ms"])
    made.add_argument("--rates", nargs="+", type=float, default=[1.0, 2.0, 3.0, 4.0])
    made.add_argument("--requests", type=int, default=200)
    made.add_argument("--prompt", type=float, default=400.0, help="tokens, the median")
    made.add_argument("--answer", type=float, default=64.0, help="tokens, the median")
    made.add_argument("--spread", type=float, default=0.5, help="of the lengths' logarithms")
    made.add_argument("--step-ms", type=float, default=12.0)
    made.add_argument("--token-ms", type=float, default=0.5)
    made.add_argument("--attention", type=float, default=0.0)
    made.add_argument("--pause-ms", type=float, default=50.0, help="bound of pauses; inf: none")
    made.add_argument("--attain", type=float, default=0.95)
    return made


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Simulate; a row for each load and policy, and the highest rates below."""
    given = options().parse_args(argv)
    users, given.users = given.users, 0
    columns = ("load", "policy", "goodput, requests/s", "share", "tok/s", "TTFT p50, p99, s")
    found = ResultTable([*columns, "TPOT p99, ms", "longest pause p99, ms"])
    for rate in given.rates:
        for policy in POLICIES:
            add_row(found, given, policy, rate)
    for given.users in filter(None, users):
        for policy in POLICIES:
            add_row(found, given, policy, 1.0)
    given.users = 0
    for policy in POLICIES:
        highest = mean(highest_rate(given, policy, repeat) for repeat in range(given.repeats))
        found.notes.append(f"{policy or 'none'}: {highest:.2f} requests/s at most")
    return found


if __name__ == "__main__":
    show(table)
