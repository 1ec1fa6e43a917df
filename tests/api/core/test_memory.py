"""The memory guard: what it counts, and when it refuses."""

import os
from pathlib import Path

from draftwerk.api.core.memory import MemoryGuard, resident_bytes


def test_it_refuses_near_the_limit_until_memory_is_well_below_it() -> None:
    guard = MemoryGuard(1000)
    answers: list[bool] = []
    for used in (940, 950, 940, 900, 899, 940):
        guard.observe(used)
        answers.append(guard.full)
    assert answers == [False, True, True, True, False, False]


def test_without_a_limit_it_never_refuses() -> None:
    guard = MemoryGuard(0)
    guard.observe(2**50)
    assert not guard.full


def test_a_process_counts_with_all_its_descendants(tmp_path: Path) -> None:
    for process, pages, children in ((1, 10, "2 3"), (2, 20, ""), (3, 30, "4"), (4, 40, "")):
        task = tmp_path / str(process) / "task" / str(process)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / str(process) / "statm").write_text(f"999 {pages} 0 0 0 0 0")
    page = os.sysconf("SC_PAGE_SIZE")
    assert resident_bytes(1, tmp_path) == 100 * page
    assert resident_bytes(5, tmp_path) == 0, "it has gone"


def test_this_process_is_larger_than_a_megabyte() -> None:
    assert resident_bytes(os.getpid()) > 2**20
