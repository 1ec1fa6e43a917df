"""Cases of which the gate has some, and the grid all."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def whole_and_sampled(names: Iterable[str], count: int) -> Any:
    """Parametrise a test by cases, each with None for all changes, and with `count` of them."""
    whole = [pytest.param(name, None, marks=pytest.mark.grid) for name in names]
    return pytest.mark.parametrize(("name", "count"), [*whole, *((name, count) for name in names)])


def in_gate(cases: Iterable[Any], gate: Container[Any]) -> list[Any]:
    """Return cases, of which others than those of the gate are for the grid."""
    return [pytest.param(each, marks=() if each in gate else pytest.mark.grid) for each in cases]
