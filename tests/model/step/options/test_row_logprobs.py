"""Known tokens have logits of their own where they are scored, and not where they are pooled."""

from types import SimpleNamespace
from typing import Any

import pytest

from draftwerk.model.step.options.row_logprobs import KnownLogprobs
from draftwerk.model.step.target_runner import RowOutputs
from draftwerk.speculative.row_parts.row_options import RowOptions


@pytest.mark.parametrize(("pools", "wanted"), [(False, range(2, 5)), (True, range(0))])
def test_scored_positions_are_counted_from_the_row(pools: bool, wanted: range) -> None:
    options = RowOptions(pools=pools, scored=(6, 9))
    outputs, row, unused = RowOutputs(), SimpleNamespace(options=options, start=4), None
    anything: Any = unused
    asked: Any = row
    KnownLogprobs(anything).add_outputs(outputs, asked, anything, anything)
    assert outputs.logits == wanted
