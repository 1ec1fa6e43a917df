"""The seam to the operating system, and what it falls back to."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk.machine import host


def cpuinfo(tmp_path: Path, text: str) -> Path:
    (tmp_path / "cpuinfo").write_text(text)
    return tmp_path


def test_features_of_an_x86_cpu(tmp_path: Path) -> None:
    proc = cpuinfo(
        tmp_path,
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A CPU\nflags\t\t: fpu avx2 fma\n",
    )
    assert host.cpu_vendor(proc) == "GenuineIntel"
    assert host.cpu_features(proc) == {"fpu", "avx2", "fma"}
    assert host.cpu_name(proc) == "A CPU"


def test_features_of_an_arm_cpu(tmp_path: Path) -> None:
    proc = cpuinfo(tmp_path, "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")
    assert host.cpu_features(proc) == {"fp", "asimd", "asimddp", "i8mm"}


def test_features_of_an_apple_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "sysctl"
    tool.write_text(
        "#!/bin/sh\necho hw.optional.AdvSIMD: 1\necho hw.optional.arm.FEAT_DotProd: 1\n"
        "echo hw.optional.arm.FEAT_I8MM: 0\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host.cpu_features() == {"asimd", "asimddp"}


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert host.cpu_features(tmp_path) == frozenset()
    assert host.cpu_vendor(tmp_path) == ""
    assert host.cpu_name(tmp_path)
    assert host.proportional_bytes(1, tmp_path) == 0


def test_without_affinity_every_cpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert host.affinity() == os.cpu_count()


@pytest.mark.parametrize("missing", [AttributeError, ValueError, OSError])
def test_memory_that_nobody_tells_is_none(
    monkeypatch: pytest.MonkeyPatch, missing: type[Exception]
) -> None:
    def refuse(name: str) -> int:
        raise missing(name)

    monkeypatch.setattr(os, "sysconf", refuse)
    assert host.memory_bytes() == 0


@pytest.mark.parametrize(
    ("said", "name"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64")]
)
def test_architectures_have_one_name(monkeypatch: pytest.MonkeyPatch, said: str, name: str) -> None:
    monkeypatch.setattr(host.platform, "machine", lambda: said)
    assert host.architecture() == name


def test_a_process_counts_with_all_its_descendants(tmp_path: Path) -> None:
    for process, pages, children in ((1, 10, "2 3"), (2, 20, ""), (3, 30, "4"), (4, 40, "")):
        task = tmp_path / str(process) / "task" / str(process)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / str(process) / "statm").write_text(f"999 {pages} 0 0 0 0 0")
    page = os.sysconf("SC_PAGE_SIZE")
    assert host.proportional_bytes(1, tmp_path) == 100 * page
    assert host.proportional_bytes(5, tmp_path) == 0, "it has gone"


def test_what_processes_share_is_counted_once(tmp_path: Path) -> None:
    for process, children in ((1, "2"), (2, "")):
        task = tmp_path / str(process) / "task" / str(process)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / str(process) / "statm").write_text("999 500 0 0 0 0 0")
        (tmp_path / str(process) / "smaps_rollup").write_text(
            "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss: 2000 kB\nPss: 300 kB\n"
        )
    assert host.proportional_bytes(1, tmp_path) == 600 * 1024
    assert host.family(1, tmp_path) == [1, 2]


def test_available_memory_is_read_from_the_system(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    assert host.available_bytes(tmp_path) == 7 * 1024
    assert host.available_bytes(tmp_path / "none") == 0


def test_this_process_is_larger_than_a_megabyte() -> None:
    assert host.proportional_bytes(os.getpid()) > 2**20


NEW_PAGES = """
import resource
from draftwerk.machine.host import reuse_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for count in (8, 3, 8):
        [bytearray(b"x") * (3 << 20) for _ in range(count)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

reuse_freed_memory() or exit(7)
new_pages()
print(new_pages())
"""


def test_what_was_freed_is_taken_again_without_a_new_page() -> None:
    ran = subprocess.run([sys.executable, "-c", NEW_PAGES], capture_output=True, check=False)
    if ran.returncode == 7:
        pytest.skip("another allocator")
    assert int(ran.stdout) < 64, ran.stderr


def test_free_memory_is_the_machines_or_what_the_container_leaves(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable:    8000 kB\n")
    assert host.free_bytes(tmp_path, lambda: None) == 8000 * 1024
    assert host.free_bytes(tmp_path, lambda: 10**9) == 8000 * 1024
    assert host.free_bytes(tmp_path, lambda: 4000) == 4000


@pytest.mark.parametrize(
    ("soft", "hard", "allowed"),
    [(64, 4096, 1000), (64, 500, 500), (2000, 4096, 2000), (64, resource.RLIM_INFINITY, 1000)],
)
def test_open_files_rise_to_what_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int
) -> None:
    limits = {"now": (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.update(now=pair))
    assert host.open_files_up_to(1000) == allowed
    assert limits["now"] == (allowed, hard)
