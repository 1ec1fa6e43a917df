"""An exchange becomes a row: how it ended, when its chunks came, what it cost."""

import pytest

from draftwerk_tools.loadtest.client.exchange import Exchange, Failure
from draftwerk_tools.loadtest.client.rowmaker import Attempt, HungUp, outcome_of, row_of
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.schedule.plan import Planned
from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt

OPTIONS = LoadTestOptions(url="http://127.0.0.1:1", warmup=1)


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (None, "ok"),
        (HungUp(), "cancelled"),
        (Failure("status", status=429), "refused"),
        (Failure("status", status=503), "refused"),
        (Failure("timeout"), "error"),
    ],
)
def test_refusals_are_told_from_errors(failure: Failure | HungUp | None, outcome: str) -> None:
    assert outcome_of(failure) == outcome


def test_a_row_has_the_times_of_its_chunks_and_counts_them_where_no_usage_came() -> None:
    exchange = Exchange("chat", chunk_times=[1.0, 1.5], pieces=["a", "b"])
    planned = Planned(3, None, WorkloadPrompt(turns=("q",), category="c"))
    row = row_of(Attempt(planned, 0, 0.5, 0.6, 2.0, exchange), OPTIONS)
    assert (row.session, row.category, row.warmup) == (3, "c", False)
    assert (row.first_s, row.last_s, row.ended_s) == (1.0, 1.5, 2.0)
    assert (row.output_tokens, row.counted_by_chunks) == (2, True)


def test_a_failure_is_told_with_its_status() -> None:
    planned = Planned(0, None, WorkloadPrompt(turns=("q",)))
    failure = Failure("status", "busy", 503, "2")
    row = row_of(Attempt(planned, 0, 0.0, 0.0, 1.0, Exchange("chat"), failure), OPTIONS)
    assert row.warmup and (row.error, row.status, row.retry_after) == ("status", 503, "2")
