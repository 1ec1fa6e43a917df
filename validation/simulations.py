"""Many simulated engines, with faults: `python -m validation.simulations --count 10000`.

Each seed draws its own server (lanes, pool, losses) and clients with priorities, deadlines and
promises; that each is served to its end or told why not, and every text, is asserted inside.
`--peers` runs servers instead that fetch blocks of peers, which are killed as they hand them over.
"""

import argparse
import logging
import random
from collections import Counter
from multiprocessing import Pool, cpu_count
from time import perf_counter

from draftwerk.speculative.requests.slo import NO_SLO, Slo, SloPolicy
from tests.support.simulation import Setting, run, run_with_peers

POLICIES: tuple[SloPolicy, ...] = ("serve", "serve", "last", "refuse")


def setting(seed: int) -> Setting:
    """Return the server of one seed."""
    rng = random.Random(seed)
    run_ahead = rng.random() < 0.5
    return Setting(
        seed,
        run_ahead=run_ahead,
        requests=rng.randint(4, 16),
        block_count=rng.choice([16, 20, 28, 60]),
        pipeline_depth=rng.choice([1, 1, 2, 3]),
        lost=rng.choice([0.0, 0.02, 0.1]),
        late=rng.choice([0.0, 0.0, 0.05]),
        bugs=rng.choice([0.0, 0.0, 0.02]),
        odd=rng.choice([0.0, 0.1]),
        reckless=rng.random() < 0.7,
        spare=rng.random() < 0.5,
        store=rng.random() < 0.3,
        slo=rng.choice([NO_SLO, Slo(ttft=0.5, tpot=0.005), Slo(ttft=0.1)]),
        promised=rng.choice([0.0, 0.5, 1.0]),
        policy=rng.choice(POLICIES),
    )


def one(seed: int) -> Counter[str]:
    """Run one simulation; its failure names the seed."""
    try:
        return run(setting(seed)).counters
    except BaseException as error:
        raise RuntimeError(f"seed {seed}: {setting(seed)}") from error


def one_with_peers(seed: int) -> Counter[str]:
    """Run two servers that fetch blocks of peers; their failure names the seed."""
    try:
        return run_with_peers(seed)
    except BaseException as error:
        raise RuntimeError(f"seed {seed} with peers") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--peers", action="store_true")
    arguments = parser.parse_args()
    logging.disable()  # every simulated bug would be logged with its traceback
    begun = perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.count)
    with Pool(cpu_count()) as pool:
        kind = one_with_peers if arguments.peers else one
        counters = sum(pool.imap_unordered(kind, seeds, chunksize=10), Counter[str]())
    print(f"{arguments.count} simulations in {perf_counter() - begun:.0f} s: {dict(counters)}")


if __name__ == "__main__":
    main()
