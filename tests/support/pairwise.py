"""Test parameters in all combinations: the gate runs a cover of all pairs, the rest is `grid`."""

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import pytest

Case = tuple[tuple[str, str], ...]
"""A value's name for each parameter."""


def pairwise(**parameters: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize a test by named values; combinations that no pair needs are marked `grid`."""
    cases = [tuple(zip(parameters, names, strict=True)) for names in product(*parameters.values())]
    needed = cover(cases)
    return pytest.mark.parametrize(
        tuple(parameters),
        [
            pytest.param(
                *(parameters[parameter][name] for parameter, name in case),
                id="-".join(name for _, name in case),
                marks=() if case in needed else pytest.mark.grid,
            )
            for case in cases
        ],
    )


def cover(cases: Iterable[Case]) -> set[Case]:
    """Return few cases in which every two values of two parameters meet; greedily, in order."""
    pairs = {case: set(combinations(case, 2)) for case in cases}
    missing = set().union(*pairs.values())
    found: set[Case] = set()
    while missing:
        best = max(pairs, key=lambda case: len(pairs[case] & missing))
        found.add(best)
        missing -= pairs[best]
    return found


def named(*values: Any) -> dict[str, Any]:
    """Return values by their own text."""
    return {str(value): value for value in values}
