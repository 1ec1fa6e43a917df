"""A thread leaves a CPU that another one needs, and may run on any CPU afterwards."""

import os

import pytest

from draftwerk.machine.cpus import UNKNOWN, current_cpu, step_aside

pytestmark = pytest.mark.skipif(current_cpu() == UNKNOWN, reason="nobody tells the CPU here")


def moves() -> bool:
    """Return whether a thread is on another CPU right after it has stepped aside."""
    cpu = current_cpu()
    step_aside(cpu)
    return current_cpu() != cpu


def test_a_thread_moves_to_another_cpu_and_may_come_back() -> None:
    allowed = os.sched_getaffinity(0)
    moved = [moves() for _ in range(100)]
    assert any(moved) == (len(allowed) > 1)
    assert os.sched_getaffinity(0) == allowed


def test_a_thread_stays_where_nobody_needs_its_cpu() -> None:
    for other in (UNKNOWN, os.cpu_count() or 1):
        step_aside(other)
    assert current_cpu() != UNKNOWN
