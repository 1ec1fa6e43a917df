"""Walks over all that files may say: whole in the grid, by a sample of each case in the gate."""

from collections.abc import Iterable
from typing import Any

import pytest


def whole_and_sampled(names: Iterable[str], count: int) -> Any:
    """Parametrise a test by cases, each with None for all changes, and with `count` of them."""
    whole = [pytest.param(name, None, marks=pytest.mark.grid) for name in names]
    return pytest.mark.parametrize(("name", "count"), [*whole, *((name, count) for name in names)])
