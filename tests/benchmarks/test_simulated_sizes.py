"""Machines of three shapes choose sizes by themselves that lose next to nothing."""

import pytest

from benchmarks.virtual.simulated_sizes import (
    MACHINES,
    VirtualMachine,
    best,
    chosen,
    options,
    served,
)

GIVEN = options().parse_args(["--count", "2"])
PAIRS = ((128, 256), (256, 512), (256, 2048))
USERS = 24


def test_machines_choose_different_sizes() -> None:
    found = [chosen(machine) for machine in MACHINES]
    assert len({(each.rows_max, each.tokens_max) for each in found}) == len(MACHINES)
    assert [each.rows_max >= 128 for each in found] == [True, False, True]


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_chosen_sizes_lose_little_against_those_set_by_hand(machine: VirtualMachine) -> None:
    pace, _ = served(machine, chosen(machine), GIVEN, USERS)
    assert pace >= 0.98 * best(machine, PAIRS, GIVEN, USERS)[0]
