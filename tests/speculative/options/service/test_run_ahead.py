"""What a round reads that another is planned behind; the rounds are in the scheduler's tests."""

from draftwerk.speculative.options.service.run_ahead import read_count
from draftwerk.speculative.rounds import Row


def test_a_row_reads_all_but_the_token_that_it_decodes() -> None:
    row = {"sequence_id": 1, "draft_max": 0, "blocks": (0, 1, 2)}
    assert read_count(Row(start=0, stop=9, samples=False, **row)) == 9  # type: ignore[arg-type]
    assert read_count(Row(start=8, stop=9, samples=True, **row)) == 0  # type: ignore[arg-type]
