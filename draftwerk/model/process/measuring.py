"""Measurements before the first request: two seconds at most; service refines it."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from draftwerk.speculative.costs.work import StepLoad

MEASURING_S = 2.0
"""For everything together; a machine so slow that one step takes longer is asked for two."""
LARGE_S = 0.25
"""The share of it for large steps: a machine on which they take longer computes no more with them.
"""
REPEATS = 3


class StepSize(NamedTuple):
    """A step to be measured."""

    tokens: int
    context: int
    """Tokens in the pages before each row."""
    rows: int = 0
    """Rows that share the tokens out; 0: as few as may carry drafts."""
    prompt: bool = False
    """Whether the tokens are a prompt's, all in one row, instead of drafts."""


WARM_UP_SIZES: tuple[StepSize, ...] = (
    *(StepSize(tokens, 0) for tokens in (1, 2, 4, 8, 16, 32, 64, 128)),
    *(StepSize(tokens, 1024) for tokens in (1, 8, 64)),
    *(StepSize(tokens, 3072) for tokens in (1, 16)),
)
"""Tokens in a step, and in the pages before them: where costs are measured at start."""
LARGE_SIZES: tuple[StepSize, ...] = tuple(
    StepSize(tokens, 0, prompt=True) for tokens in (256, 512, 1024)
)
"""The sizes of prompts: what a step may hold on a machine of many cores."""
ROW_TOKENS = 64
"""A row's last known token and as many drafts as it may carry."""
StepTimes = tuple[tuple[StepLoad, float], ...]
"""Steps and their milliseconds."""


def step_costs(
    measure: Callable[[StepSize], tuple[StepLoad, float]],
    sizes: Sequence[StepSize],
    budget_s: float,
    large: Sequence[StepSize] = (),
    compiles: bool = False,
) -> StepTimes:
    """Return steps with their median milliseconds, in the given order, as far as the budget goes.

    `measure` computes a step. Sizes whose cost is not known yet are taken to cost as much a token
    as the largest so far, and the tokens before them as much again, which is the most they can.
    Sizes without context come first; `large` ones are measured once, within what is left by then.
    For a device that `compiles` then, all are computed once before, beside the budget.
    """
    for size in (*sizes, *large) if compiles else ():
        measure(size)
    left_ms = 1e3 * budget_s - measure(sizes[0])[1]  # touches memory for the first time: no measure
    loads: dict[StepSize, StepLoad] = {}
    times: dict[StepSize, list[float]] = {}
    for some, share_ms in (*((sizes, left_ms) for _ in range(REPEATS)), (large, 1e3 * LARGE_S)):
        left_ms = min(left_ms, share_ms)
        for size in some:
            if times and _bound_ms(times, size) > left_ms:
                continue
            loads[size], taken = measure(size)
            left_ms -= taken
            times.setdefault(size, []).append(taken)
    return tuple((loads[size], median(times[size])) for size in (*sizes, *large) if size in times)


def _bound_ms(times: dict[StepSize, list[float]], size: StepSize) -> float:
    if size in times:
        return times[size][0]
    largest = max(seen for seen in times if not seen.context)
    context = size.context * max(1, size.rows)
    return times[largest][0] * max(1.0, (size.tokens + context) / largest.tokens)
