"""A line counts what has ended, what is under way, and what went wrong."""

import io

from draftwerk_tools.loadtest.client.progress import WIDTH, Progress
from tests.loadtest.helpers import row


def test_rows_are_counted_and_the_bar_is_as_far_as_they_are() -> None:
    out = io.StringIO()
    progress = Progress(lambda: 2.0, "run", 4, None, out)
    progress.note(1)
    progress.count(row())
    progress.count(row(outcome="error"))
    line = progress.line()
    assert "2/4 done" in line and "1 in flight" in line and "1 not ok" in line
    assert "10 tok/s" in line and line.count("\u2588") == WIDTH // 2
    progress.close()
    assert out.getvalue() == line + "\n"
