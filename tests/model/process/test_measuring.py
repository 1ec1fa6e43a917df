"""The budget of measuring, by injected costs: nothing here takes the time that it counts."""

from collections.abc import Callable

import pytest

from draftwerk.model.process.measuring import StepSize, step_costs
from draftwerk.speculative.costs.work import StepLoad

SIZES = tuple(StepSize(tokens, 0) for tokens in (1, 2, 4, 8, 16, 32, 64, 128))


class Machine:
    """Steps whose cost is given; counts what they took."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost = cost
        self.spent_ms = 0.0
        self.steps = 0

    def measure(self, size: StepSize) -> tuple[StepLoad, float]:
        self.steps += 1
        tokens, context = size.tokens, size.context
        ms = self.cost(tokens) + context / 100
        self.spent_ms += ms
        return StepLoad(tokens, tokens, tokens * context), ms


def test_a_fast_machine_measures_every_size_thrice() -> None:
    machine = Machine(lambda tokens: 5 + tokens / 4)
    assert step_costs(machine.measure, SIZES, 2.0) == tuple(
        (StepLoad(n, n), 5 + n / 4) for n, *_ in SIZES
    )
    assert machine.steps == 1 + 3 * len(SIZES)


def test_what_a_device_compiles_at_a_size_is_not_its_cost() -> None:
    """The first step of each size takes a second more."""
    seen: set[int] = set()

    def cost(tokens: int) -> float:
        is_first = tokens not in seen
        seen.add(tokens)
        return 5.0 + 1000 * is_first

    costs = step_costs(Machine(cost).measure, SIZES, 2.0, compiles=True)
    assert costs == tuple((StepLoad(n, n), 5.0) for n, *_ in SIZES)


@pytest.mark.parametrize("slowness", [1, 3, 10, 30, 100])
def test_no_machine_measures_for_longer_than_the_budget(slowness: int) -> None:
    machine = Machine(lambda tokens: slowness * (5 + tokens))
    costs = step_costs(machine.measure, SIZES, 2.0)
    assert machine.spent_ms <= 2000
    assert [load.tokens for load, _ in costs] == [size.tokens for size in SIZES[: len(costs)]]
    assert all(ms == slowness * (5 + load.tokens) for load, ms in costs)


def test_large_steps_are_measured_once_where_they_are_short() -> None:
    large = tuple(StepSize(tokens, 0, prompt=True) for tokens in (256, 512, 1024))
    fast, slow = Machine(lambda tokens: 5 + tokens / 100), Machine(lambda tokens: 5 + tokens)
    assert [load.tokens for load, _ in step_costs(fast.measure, SIZES, 2.0, large)][-2:] == [
        512,
        1024,
    ]
    assert fast.steps == 1 + 3 * len(SIZES) + len(large)
    assert step_costs(slow.measure, SIZES, 90.0, large)[-1][0].tokens == 128
    assert slow.steps == 1 + 3 * len(SIZES)


def test_one_step_is_measured_however_slow_it_is() -> None:
    machine = Machine(lambda tokens: 9000.0 * tokens)
    assert step_costs(machine.measure, SIZES, 2.0) == ((StepLoad(1, 1), 9000.0),)
    assert machine.steps == 2


def test_a_hiccup_does_not_become_the_cost() -> None:
    machine = Machine(lambda tokens: 500.0 if machine.steps in (3, 13) else 10.0)
    costs = step_costs(machine.measure, SIZES, 3.0)
    assert costs == tuple((StepLoad(n, n), 10.0) for n, *_ in SIZES)


def test_contexts_are_measured_where_the_budget_allows() -> None:
    sizes = (*SIZES, StepSize(1, 1000), StepSize(8, 4000))
    fast, slow = Machine(lambda tokens: 5 + tokens / 4), Machine(lambda tokens: 10.0 * tokens)
    assert [load for load, _ in step_costs(fast.measure, sizes, 90.0)][-2:] == [
        StepLoad(1, 1, 1000),
        StepLoad(8, 8, 32000),
    ]
    assert all(not load.context_tokens for load, _ in step_costs(slow.measure, sizes, 2.0))
    assert slow.spent_ms <= 2000
