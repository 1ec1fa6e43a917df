"""Peers' suites: their cases are read, and set against the table of private ones."""

import pytest

from validation.peer_suites.peers import (
    PEERS,
    CaseResult,
    covers,
    faults,
    junit_cases,
    of_suite,
    private_table,
)

REPORT = """<testsuites><testsuite>
<testcase name="good"/>
<testcase name="bad[1]"><failure message="assert  1
 == 2">more</failure></testcase>
<testcase name="left"><skipped message="needs its own class"/></testcase>
<testcase name="torn"><error message="no server"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read() -> None:
    assert junit_cases(REPORT) == [
        CaseResult("good", "passed"),
        CaseResult("bad[1]", "failed", "assert 1 == 2"),
        CaseResult("left", "skipped", "needs its own class"),
        CaseResult("torn", "failed", "no server"),
    ]


def test_a_case_outside_the_table_fails_and_a_private_one_must_not_pass() -> None:
    found = junit_cases(REPORT)
    assert faults(found, {"bad": "its own", "torn": "its own"}) == []
    (fails,) = faults(found, {"bad": "its own"})
    (passes,) = faults(found, {"bad": "its own", "torn": "its own", "good": "its own"})
    assert fails == "torn fails: no server" and passes.startswith("good passes")


@pytest.mark.parametrize(
    ("pattern", "name", "is_covered"),
    [
        ("test_a", "test_a", True),
        ("test_a", "test_a[x-1]", True),
        ("test_a", "test_ab", False),
        ("test_a[x]", "test_a[x]", True),
        ("test_a[x]", "test_a[y]", False),
        ("test_a[*-1]", "test_a[(a|b)+-1]", True),
        ("test_a[*-1]", "test_a[x-2]", False),
    ],
)
def test_rows_cover_cases(pattern: str, name: str, is_covered: bool) -> None:
    assert covers(pattern, name) is is_covered


def test_a_row_is_of_all_suites_or_of_the_file_that_it_names() -> None:
    rows = {"test_a": "every", "test_x::test_b": "x's", "test_y::test_b[1]": "y's"}
    assert of_suite(rows, "tests/test_x") == {"test_a": "every", "test_b": "x's"}
    assert of_suite(rows, "test_y") == {"test_a": "every", "test_b[1]": "y's"}


def test_the_table_is_of_peers_and_has_reasons() -> None:
    table = private_table()
    assert {*table} <= {each.name for each in PEERS}
    assert all(reason for rows in table.values() for reason in rows.values())
