"""Sizes of rounds as the server chooses them against sizes set by hand, on virtual machines.

    python -m benchmarks.virtual.simulated_sizes [--users 16 64 256] [--gap-ms 2]

The real scheduler runs over a device of which only the time matters: the default model's roofline
in int8 on so many cores. Steps are measured as at the start of a server. Users ask one question
after the other, each with a prompt of its own, until all are answered. A row of the table is a
machine and a number of users: the sizes that a server has chosen at start and revised in service,
and those of the best pair of the grid.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from msgspec.structs import replace

from benchmarks.support.bench import ResultTable, parser, show
from benchmarks.support.virtual_server import (
    RATES,
    SHAPE,
    VirtualServer,
    VirtualText,
)
from draftwerk.api.core.config import Settings
from draftwerk.assembly.round_limits import round_limits
from draftwerk.cache.blocks import BlockPool
from draftwerk.model.process.measuring import (
    LARGE_SIZES,
    MEASURING_S,
    ROW_TOKENS,
    WARM_UP_SIZES,
    StepSize,
    step_costs,
)
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.scheduler import RoundLimits, Scheduler

BLOCK, CONTEXT = 16, 4096
RoundSizes = tuple[int, int]
"""Texts at once, and tokens of a round."""


@dataclass(frozen=True)
class VirtualMachine:
    """A number of cores like those of `RATES`, and memory for keys and values."""

    cores: int
    kv_mib: int

    @property
    def roofline(self) -> Roofline:
        """What the model can reach: memory is read by eight cores as fast as by more."""
        share = self.cores / 2
        rates = MachineRates(
            flops_per_s=share * RATES.flops_per_s,
            bytes_per_s=min(4.0, share) * RATES.bytes_per_s,
            attention_flops_per_s=share * RATES.attention_flops_per_s,
        )
        return Roofline(shape=SHAPE, rates=rates)

    @property
    def blocks(self) -> int:
        return int(self.kv_mib * 2**20 / SHAPE.token_bytes) // BLOCK

    def ready(self) -> Ready:
        """Return what a model process would measure at start."""
        roofline = self.roofline

        def measure(size: StepSize) -> tuple[StepLoad, float]:
            load = load_of(size)
            return load, roofline.ms(load)

        costs = step_costs(measure, WARM_UP_SIZES, MEASURING_S, LARGE_SIZES)
        return Ready(
            device="cpu", attention="native", exact=True, step_costs=costs, roofline=roofline
        )


MACHINES = (VirtualMachine(2, 1024), VirtualMachine(2, 256), VirtualMachine(16, 4096))


def load_of(size: StepSize) -> StepLoad:
    """Return the load of a step that is measured at start."""
    width = size.tokens if size.prompt else ROW_TOKENS
    load = NO_LOAD
    for first in range(0, size.tokens, width):
        count = min(width, size.tokens - first)
        load = load.with_row(size.context, count, 1 if size.prompt else count)
    return load


def texts(given: argparse.Namespace, users: int) -> list[VirtualText]:
    """Return the questions of all users, of lengths about those asked for."""
    rng = Random(given.seed)
    return [
        VirtualText(round(given.prompt * rng.uniform(0.5, 1.5)), given.tokens)
        for _ in range(given.count * users)
    ]


def chosen(machine: VirtualMachine) -> RoundLimits:
    """Return the limits that a server chooses at start."""
    settings = Settings(prefer="throughput")
    return round_limits(settings, RoundLimits(draft_max=0), machine.ready(), machine.blocks * BLOCK)


def served(
    machine: VirtualMachine, limits: RoundLimits, given: argparse.Namespace, users: int
) -> tuple[float, RoundSizes]:
    """Return the tokens a second, and the sizes at the end."""
    roofline = machine.roofline
    scheduler = Scheduler(
        BlockPool(machine.blocks, BLOCK),
        limits,
        cost=StepCost(machine.ready().step_costs, roofline),
        lengths=TextLengths(),
    )
    asked = texts(given, users)
    server = VirtualServer(scheduler, asked, roofline.ms, CONTEXT, users, given.gap_ms)
    server.run()
    pace = scheduler.stats.generated_tokens / server.now_s
    return pace, (limits.rows_max, scheduler.load.round_tokens)


def best(
    machine: VirtualMachine, pairs: Iterable[RoundSizes], given: argparse.Namespace, users: int
) -> tuple[float, RoundSizes]:
    """Return the most tokens a second with sizes set by hand, and these."""
    hand = RoundLimits(draft_max=0)
    return max(
        served(machine, replace(hand, rows_max=rows, tokens_max=tokens), given, users)
        for rows, tokens in pairs
    )


def options() -> argparse.ArgumentParser:
    made = parser(__doc__, users=[16, 64, 256], count=3, tokens=48, seed=1)
    made.add_argument("--prompt", type=int, default=200, help="tokens of a prompt, the mean")
    made.add_argument("--gap-ms", type=float, default=2.0, help="between two steps")
    made.add_argument("--rows", nargs="+", type=int, default=[32, 64, 128, 256])
    made.add_argument("--round-tokens", nargs="+", type=int, default=[256, 512, 1024, 2048])
    return made


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Simulate; a row for each machine and number of users."""
    given = options().parse_args(argv)
    columns = ("machine", "users", "chosen rows, tokens", "tok/s", "best rows, tokens")
    found = ResultTable([*columns, "tok/s", "chosen / best"])
    pairs = [*product(given.rows, given.round_tokens)]
    for machine in MACHINES:
        for users in given.users:
            pace, sizes = served(machine, chosen(machine), given, users)
            most, best_sizes = best(machine, pairs, given, users)
            name = f"{machine.cores} cores, {machine.kv_mib} MiB"
            found.add(name, users, sizes, pace, best_sizes, most, f"{pace / most:.3f}")
    return found


if __name__ == "__main__":
    show(table)
