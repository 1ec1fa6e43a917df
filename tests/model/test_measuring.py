"""The budget of measuring, by injected costs: nothing here takes the time that it counts."""

from collections.abc import Callable

import pytest

from draftwerk.model.measuring import step_costs

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Machine:
    """Steps whose cost is given; counts what they took."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost = cost
        self.spent_ms = 0.0
        self.steps = 0

    def measure(self, tokens: int) -> float:
        self.steps += 1
        self.spent_ms += self.cost(tokens)
        return self.cost(tokens)


def test_a_fast_machine_measures_every_size_thrice() -> None:
    machine = Machine(lambda tokens: 5 + tokens / 4)
    assert step_costs(machine.measure, SIZES, 2.0) == tuple((n, 5 + n / 4) for n in SIZES)
    assert machine.steps == 1 + 3 * len(SIZES)


@pytest.mark.parametrize("slowness", [1, 3, 10, 30, 100])
def test_no_machine_measures_for_longer_than_the_budget(slowness: int) -> None:
    machine = Machine(lambda tokens: slowness * (5 + tokens))
    costs = step_costs(machine.measure, SIZES, 2.0)
    assert machine.spent_ms <= 2000
    assert [tokens for tokens, _ in costs] == list(SIZES[: len(costs)])
    assert all(ms == slowness * (5 + tokens) for tokens, ms in costs)


def test_one_step_is_measured_however_slow_it_is() -> None:
    machine = Machine(lambda tokens: 9000.0 * tokens)
    assert step_costs(machine.measure, SIZES, 2.0) == ((1, 9000.0),)
    assert machine.steps == 2


def test_a_hiccup_does_not_become_the_cost() -> None:
    machine = Machine(lambda tokens: 500.0 if machine.steps in (3, 13) else 10.0)
    assert dict(step_costs(machine.measure, SIZES, 3.0)) == dict.fromkeys(SIZES, 10.0)
