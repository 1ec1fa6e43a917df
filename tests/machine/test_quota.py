"""A container's CPU quota, read from control groups laid out in a folder."""

from pathlib import Path

import pytest

from draftwerk.machine.quota import memory_left, quota_cpus


def groups(tmp_path: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Lay out a membership file and control-group files below a root."""
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    listed = tmp_path / "membership"
    listed.write_text(membership)
    return listed, root


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("10000 100000\n", 1),
        ("max 100000\n", None),
        ("nonsense\n", None),
    ],
)
def test_a_quota_of_version_2_is_rounded_up(tmp_path: Path, text: str, cpus: int | None) -> None:
    assert quota_cpus(*groups(tmp_path, "0::/\n", {"cpu.max": text})) == cpus


def test_the_tightest_group_above_counts(tmp_path: Path) -> None:
    files = {
        "cpu.max": "max 100000",
        "pod/cpu.max": "300000 100000",
        "pod/one/cpu.max": "800000 100000",
    }
    assert quota_cpus(*groups(tmp_path, "0::/pod/one\n", files)) == 3


def test_a_path_of_the_host_leads_to_the_containers_own_root(tmp_path: Path) -> None:
    files = {"cpu.max": "100000 50000"}
    assert quota_cpus(*groups(tmp_path, "0::/kubepods/pod7/abc\n", files)) == 2


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_1(tmp_path: Path, mount: str) -> None:
    membership = "7:memory:/it\n5:cpu,cpuacct:/it\n2:cpuset:/it\n"
    files = {
        f"{mount}/it/cpu.cfs_quota_us": "250000\n",
        f"{mount}/it/cpu.cfs_period_us": "100000\n",
        f"{mount}/cpu.cfs_quota_us": "-1\n",
        f"{mount}/cpu.cfs_period_us": "100000\n",
    }
    assert quota_cpus(*groups(tmp_path, membership, files)) == 3


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert quota_cpus(tmp_path / "none", tmp_path) is None


STAT = "anon 700\nfile 300\nactive_file 100\ninactive_file 150\n"


def test_memory_of_version_2_is_what_the_limit_leaves_and_the_files_that_can_be_dropped(
    tmp_path: Path,
) -> None:
    files = {
        "memory.max": "max\n",
        "memory.current": "5000\n",
        "memory.stat": STAT,
        "pod/memory.max": "2000\n",
        "pod/memory.current": "1000\n",
        "pod/memory.stat": STAT,
    }
    assert memory_left(*groups(tmp_path, "0::/pod\n", files)) == 2000 - 1000 + 250


def test_memory_of_version_1_counts_the_groups_below(tmp_path: Path) -> None:
    files = {
        "memory/it/memory.limit_in_bytes": "3000\n",
        "memory/it/memory.usage_in_bytes": "3000\n",
        "memory/it/memory.stat": "total_cache 9\nactive_file 5\n"
        "total_active_file 30\ntotal_inactive_file 40\n",
    }
    assert memory_left(*groups(tmp_path, "7:memory:/it\n5:cpu:/it\n", files)) == 70


def test_memory_without_a_limit_is_not_bounded(tmp_path: Path) -> None:
    files = {"memory.max": "max\n", "memory.current": "5\n", "memory.stat": STAT}
    assert memory_left(*groups(tmp_path, "0::/\n", files)) is None
    assert memory_left(tmp_path / "nothing", tmp_path) is None
