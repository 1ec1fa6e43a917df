"""What is measured before the first request: two seconds at most; service refines it."""

from collections.abc import Callable, Sequence
from statistics import median

MEASURING_S = 2.0
"""For everything together; a machine so slow that one step takes longer is asked for two."""
REPEATS = 3
StepCosts = tuple[tuple[int, float], ...]
"""(tokens, milliseconds), smallest first."""


def step_costs(measure: Callable[[int], float], sizes: Sequence[int], budget_s: float) -> StepCosts:
    """Return (tokens, median milliseconds) of steps, smallest first, as far as the budget goes.

    `measure` returns the milliseconds of a step of so many tokens. Sizes whose cost is not known
    yet are taken to cost as much a token as the size before them, which is the most they can.
    """
    left_ms = 1e3 * budget_s - measure(sizes[0])  # touches memory for the first time: no measure
    times: dict[int, list[float]] = {}
    for _ in range(REPEATS):
        for size in sizes:
            if times and _bound_ms(times, size) > left_ms:
                break
            taken = measure(size)
            left_ms -= taken
            times.setdefault(size, []).append(taken)
    return tuple((size, median(taken)) for size, taken in times.items())


def _bound_ms(times: dict[int, list[float]], size: int) -> float:
    if size in times:
        return times[size][0]
    largest = max(times)
    return times[largest][0] * size / largest
