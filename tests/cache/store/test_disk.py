"""Records on disk: what is not right in every byte, and in time, is not there."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from draftwerk.cache.pages.page_layout import PageLayout
from draftwerk.cache.store import disk
from draftwerk.cache.store.block_bytes import BlockBytes
from draftwerk.cache.store.block_record import HEADER_BYTES
from draftwerk.cache.store.disk import DiskStore, name_key
from draftwerk.cache.store.page_store import PageStore

SIZE = 1000
RECORD = SIZE + HEADER_BYTES
MARK = b"f" * 16


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def content(number: int) -> bytes:
    return random.Random(number).randbytes(SIZE)


def store(folder: Path, mark: bytes = MARK, records: int = 100, **how: Any) -> DiskStore:
    made = DiskStore(folder, mark, SIZE, records * RECORD, **how)
    made.recount()
    return made


def path_of(folder: Path, number: int) -> Path:
    (path,) = folder.glob(f"*/*/{name(number).hex()}.kv")
    return path


def test_what_was_written_is_read_by_this_server_and_the_next(tmp_path: Path) -> None:
    first = store(tmp_path)
    assert first.read(name(1)) is None
    assert first.write(name(1), content(1))
    for each in (first, store(tmp_path)):
        assert name(1) in each
        assert each.read(name(1)) == content(1)
    assert (first.stats.hits, first.stats.misses, first.stats.writes) == (1, 1, 1)
    assert first.stats.read_bytes == first.stats.written_bytes == SIZE


def test_a_block_that_another_server_writes_is_found_by_those_of_its_model(tmp_path: Path) -> None:
    one, other = store(tmp_path), store(tmp_path)
    assert name(1) not in other
    assert one.write(name(1), content(1))
    assert name(1) in other and name(2) not in other
    assert other.read(name(1)) == content(1)
    assert other.total_bytes == one.total_bytes == RECORD
    other_model = store(tmp_path, b"g" * 16)
    assert name(1) not in other_model, "it computes other bits"
    assert other_model.read(name(1)) is None
    assert other_model.total_bytes == RECORD, "though it counts"


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    key = name_key(folder)
    assert len(key) == 32 and name_key(folder) == key
    store(folder).write(name(1), content(1))
    for path in (folder, *folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_key_that_is_cut_short_is_made_anew(tmp_path: Path) -> None:
    first = name_key(tmp_path)
    (tmp_path / "key").write_bytes(first[:5])
    assert name_key(tmp_path) not in (first, first[:5])


def cut(path: Path) -> None:
    os.truncate(path, RECORD - 1)


def flip(path: Path, bit: int = 8 * (HEADER_BYTES + SIZE // 2)) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flip_in_header(path: Path) -> None:
    flip(path, 8 * 30)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def another_block(path: Path) -> None:
    """A record that is right in itself, under another name."""
    other = store(path.parents[2])
    other.write(name(2), content(2))
    path_of(path.parents[2], 2).replace(path)


def another_model(path: Path) -> None:
    other = store(path.parents[2], b"g" * 16)
    other.write(name(1), content(2))
    (path.parents[2] / (b"g" * 16).hex() / path.parent.name / path.name).replace(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "harm",
    [cut, flip, flip_in_header, grow, empty, another_block, another_model, a_folder],
)
def test_a_record_that_is_not_right_is_a_miss(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    made = store(tmp_path)
    made.write(name(1), content(1))
    harm(path_of(tmp_path, 1))
    assert made.read(name(1)) is None
    assert (made.stats.misses, made.stats.refused, made.stats.hits) == (1, 1, 0)
    assert name(1) not in made
    if harm is not a_folder:
        assert made.write(name(1), content(1))
        assert made.read(name(1)) == content(1)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    made = store(tmp_path)
    for bit in random.Random(3).sample(range(8 * RECORD), 200):
        made.write(name(1), content(1))
        flip(path_of(tmp_path, 1), bit)
        assert made.read(name(1)) is None


def test_a_record_that_is_deleted_is_a_miss(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.write(name(1), content(1))
    path_of(tmp_path, 1).unlink()
    assert made.read(name(1)) is None
    assert made.stats.refused == 0


def test_records_deleted_while_they_are_read_are_whole_or_missing(tmp_path: Path) -> None:
    writer, reader = store(tmp_path), store(tmp_path)
    ended = False

    def disturb() -> None:
        while not ended:
            writer.write(name(1), content(1))
            writer.remove(name(1))

    thread = Thread(target=disturb)
    thread.start()
    found = [reader.read(name(1)) for _ in range(2000)]
    ended = True
    thread.join()
    assert {bytes(each) for each in found if each is not None} <= {content(1)}
    assert reader.stats.refused == 0


def test_the_bound_holds_and_the_oldest_go(tmp_path: Path) -> None:
    made = store(tmp_path, records=5)
    for number in range(20):
        made.write(name(number), content(number))
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 5 * RECORD
        made.read(name(17)) if number > 17 else None
    assert [number for number in range(20) if name(number) in made] == [15, 16, 17, 18, 19]
    assert made.newest(2) == [name(17), name(19)]
    assert made.stats.evictions == 15


def test_two_servers_in_one_folder_stay_within_one_bound(tmp_path: Path) -> None:
    one, two = store(tmp_path, records=10), store(tmp_path, records=10)
    for number in range(40):
        (one if number % 2 else two).write(name(number), content(number))
    one.recount()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 10 * RECORD
    two.recount()
    for number in range(40):
        for each in (one, two):
            assert each.read(name(number)) in (None, content(number))


def test_a_full_disk_costs_a_block_and_is_not_tried_at_once_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    made = store(tmp_path, clock=lambda: now)
    made.write(name(1), content(1))

    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_record", full)
        assert not made.write(name(2), content(2))
        assert not made.write(name(3), content(3))
        assert made.stats.failed_writes == 1
        assert not made.write(name(2), content(2)), "still paused"
        now = disk.PAUSE_S
        assert not made.write(name(2), content(2))
        assert made.stats.failed_writes == 2
    (said,) = caplog.messages
    assert said == f"blocks cannot be kept in {tmp_path}: No space left on device"
    now = 2 * disk.PAUSE_S
    assert made.write(name(2), content(2))
    assert caplog.messages[1:] == [f"blocks are kept in {tmp_path} again"]
    assert made.read(name(1)) == content(1)
    assert not list(tmp_path.rglob("*.part"))


def test_a_folder_that_cannot_be_written_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path).write(name(1), content(1))
    key = name_key(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    made = store(tmp_path)
    assert made.read(name(1)) == content(1)
    assert not made.write(name(2), content(2))
    assert name_key(tmp_path) == key


KILLED = """
import os, sys
from pathlib import Path
from draftwerk.cache.store.disk import DiskStore
made = DiskStore(Path(sys.argv[1]), b"f" * 16, 2**20, 2**30)
print("writing", flush=True)
for number in range(10**9):
    made.write((number % 50).to_bytes(16, "big"), bytes([number % 50]) * 2**20)
"""


def test_a_server_killed_while_it_writes_leaves_whole_records(tmp_path: Path) -> None:
    root = Path(disk.__file__).resolve().parents[3]
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, cwd=root
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            while len(list(tmp_path.rglob("*.kv"))) < 5:
                pass
            os.kill(child.pid, signal.SIGKILL)
    made = DiskStore(tmp_path, MARK, 2**20, 2**30)
    made.recount()
    assert len(made) >= 5
    for number in range(50):
        if name(number) in made:
            assert made.read(name(number)) == bytes([number]) * 2**20
    assert made.stats.refused == 0


def test_what_killed_servers_have_left_is_removed_in_time(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.write(name(1), content(1))
    left = path_of(tmp_path, 1).with_name("left.part")
    left.write_bytes(b"half")
    made.recount()
    assert left.exists(), "another server may be writing it"
    os.utime(left, (1, 1))
    made.recount()
    assert not left.exists()


def test_files_of_others_are_let_be(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.write(name(1), content(1))
    (tmp_path / "notes.txt").write_text("mine")
    made.recount()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_block_crosses_from_pages_to_pages(tmp_path: Path) -> None:
    layout = PageLayout(planes=4, block_count=3, unit_bytes=SIZE // 4)
    memory = bytearray(random.Random(2).randbytes(layout.page_bytes))
    made = PageStore(store(tmp_path), BlockBytes(layout, memoryview(memory)))
    before = made.copy(2)
    made.keep(name(9), before)
    memory[:] = bytes(len(memory))
    (loaded,) = made.load([name(9)])
    assert loaded is not None
    made.put(1, loaded)
    assert made.copy(1) == before
    assert not any(made.copy(0)) and not any(made.copy(2))
    assert made.counters()["blocks"] == 1


def test_a_state_and_the_block_of_its_name_are_told_apart(tmp_path: Path) -> None:
    disk = store(tmp_path, state_bytes=3 * SIZE)
    layouts = PageLayout(4, 2, SIZE // 4), PageLayout(1, 2, 3 * SIZE)
    memories = [bytearray(random.Random(3).randbytes(each.page_bytes)) for each in layouts]
    pages = [BlockBytes(*each) for each in zip(layouts, map(memoryview, memories), strict=True)]
    blocks, states = PageStore(disk, pages[0]), PageStore(disk, pages[1], b"state")
    before = blocks.copy(0), states.copy(0)
    assert states.keep(name(1), before[1]) and name(1) not in blocks
    assert blocks.keep(name(1), before[0])
    assert (*blocks.load([name(1)]), *states.load([name(1)])) == before
    assert blocks.newest(9) == [name(1)], "a state is no block"
    other = PageStore(store(tmp_path, state_bytes=3 * SIZE), pages[1], b"state")
    assert name(1) in other
    assert other.load([name(1)]) == [before[1]]
    states.remove(name(1))
    assert name(1) not in states and blocks.load([name(1)]) == [before[0]]


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """They would put blocks of their own into it, or read the key of its names."""
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write"):
        name_key(tmp_path)
    tmp_path.chmod(0o700)
    assert len(name_key(tmp_path)) == 32


def test_a_record_behind_a_link_is_a_miss(tmp_path: Path) -> None:
    """Who made the link may change what it leads to."""
    made = store(tmp_path)
    made.write(name(1), content(1))
    path = path_of(tmp_path, 1)
    path.replace(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert made.read(name(1)) is None


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(name_key(tmp_path)) == 32
    user = os.geteuid()
    monkeypatch.setattr(disk.os, "geteuid", lambda: user + 1)
    with pytest.raises(PermissionError, match="another user's"):
        name_key(tmp_path)
