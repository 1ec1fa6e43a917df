"""Memory shared between processes: what one writes the other reads, and a death takes nothing."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk.machine import shared_memory
from draftwerk.machine.shared_memory import HUGE, SharedMemory, mapped

CHILD = """
import os, sys
from draftwerk.machine.shared_memory import mapped
found = mapped(int(sys.argv[1]))
found.view[5:8] = b"abc"
os.kill(os.getpid(), 9)
"""


@pytest.fixture(params=["the system's", "a file"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SharedMemory:
    if request.param == "a file":
        monkeypatch.delattr(os, "memfd_create")
    return SharedMemory.make(3 * HUGE + 4096)


def test_what_a_killed_process_wrote_is_there(memory: SharedMemory) -> None:
    root = Path(shared_memory.__file__).resolve().parents[2]
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(memory.descriptor)],
        pass_fds=[memory.descriptor],
        cwd=root,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert memory.map()[4:9] == b"\0abc\0"
    memory.close()


def test_memory_is_taken_as_it_is_written(memory: SharedMemory) -> None:
    assert memory.allocated == 0
    memory.map()[HUGE : HUGE + 4] = b"here"
    assert 0 < memory.allocated <= HUGE
    memory.close()


def test_memory_that_is_given_back_is_taken_no_more_and_reads_as_zeros(
    memory: SharedMemory,
) -> None:
    found = memory.map()
    found[HUGE : HUGE + 4] = b"here"
    memory.empty()
    assert sys.platform != "linux" or (memory.allocated, found[HUGE : HUGE + 4]) == (0, bytes(4))
    memory.close()


def test_gathering_changes_no_byte(memory: SharedMemory) -> None:
    found = mapped(memory.descriptor)
    assert found.address % HUGE == 0 or sys.platform != "linux"
    found.view[0:4], found.view[2 * HUGE : 2 * HUGE + 4] = b"left", b"more"
    found.gather(0, memory.size)  # where the system can
    assert bytes(found.view[0:5]) == b"left\0"
    assert bytes(found.view[2 * HUGE : 2 * HUGE + 5]) == b"more\0"
    assert not found.gather(3 * HUGE, memory.size), "no whole huge page is left there"
    memory.close()


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is given back")
def test_a_part_is_given_back_in_whole_pages(memory: SharedMemory) -> None:
    found = mapped(memory.descriptor)
    page = mmap.PAGESIZE
    found.view[: 4 * page] = b"x" * 4 * page
    found.release(page - 1, 3 * page + 1)
    found.release(1, page)  # there is no whole page in it
    assert memory.allocated == 2 * page
    assert bytes(found.view[page - 1 : page + 1]) == b"x\0"
    assert bytes(found.view[3 * page - 1 : 3 * page + 1]) == b"\0x"
    memory.close()


def test_a_reader_cannot_write(memory: SharedMemory) -> None:
    view = mapped(memory.descriptor, writable=False).view
    if sys.platform == "linux":
        with pytest.raises(TypeError):
            view[0] = 1
    memory.close()


def test_a_file_in_a_folder_has_no_name_and_what_is_dropped_is_read_again(tmp_path: Path) -> None:
    memory = SharedMemory.make(2 * HUGE, folder=str(tmp_path))
    assert os.fstat(memory.descriptor).st_dev == tmp_path.stat().st_dev
    assert not list(tmp_path.iterdir())
    mapping = mapped(memory.descriptor)
    mapping.view[HUGE - 2 : HUGE + 2] = b"kept"
    mapping.drop()
    assert mapping.view[HUGE - 2 : HUGE + 2] == b"kept"
    assert memory.allocated < HUGE, "what was not written takes no room"
    memory.close()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SharedMemory.make(4096, folder=str(tmp_path / "none"))


def test_empty_memory_is_an_error() -> None:
    memory = SharedMemory.make(0)
    with pytest.raises(ValueError, match="no memory"):
        mapped(memory.descriptor)
    memory.close()
