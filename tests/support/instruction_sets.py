"""The instruction sets that tests compare: `make test` a few, `make test-grid` the others too."""

from collections.abc import Iterable

import pytest

from draftwerk.model.native.isa import BASES, ISAS, available, compared

GATE = [isa.name for isa in compared()]
"""Those of this CPU, the fastest last."""
TOGETHER = [
    pytest.param(GATE, id="gate"),
    pytest.param([isa.name for isa in available()], id="all", marks=pytest.mark.grid),
]
"""Parameters of a test that compares several, each with all others."""


def each_isa(names: Iterable[str] = ISAS) -> list[object]:
    """Return the parameters of a test: names, and a mark on those that the grid alone runs."""
    return [
        pytest.param(name, marks=[] if name in {*BASES, *GATE} else pytest.mark.grid)
        for name in names
    ]
