"""The limits of rounds, and what follows from them."""

import pytest

from draftwerk.speculative.load.size_limits import RoundLimits


@pytest.mark.parametrize(("run_ahead", "rows"), [(False, 1), (True, 2)])
def test_a_sequence_has_two_rows_under_way_where_rounds_are_planned_ahead(
    run_ahead: bool, rows: int
) -> None:
    limits = RoundLimits(pipeline_depth=2, run_ahead=run_ahead)
    assert limits.rows_in_flight == rows
