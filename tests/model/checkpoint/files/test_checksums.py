"""Checksums of chunks: whole files pass, and no changed bit does."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.model.checkpoint.files import checksums as module
from draftwerk.model.checkpoint.files.checksums import (
    checksums,
    is_whole,
    read_checked,
    table_bytes,
)

OFFSET = 5


def check(path: Path, size: int) -> tuple[bool, bool, bytes]:
    """Return both verdicts about a file, and what was read."""
    found = bytearray(size)
    with path.open("rb") as file:
        was_read = read_checked(file.fileno(), OFFSET, memoryview(found))
        return was_read, is_whole(file.fileno(), OFFSET, size), bytes(found)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checksums") / "file"


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", 48)
        patch.setattr(module, "PAGE", 16)
        yield


@given(st.binary(max_size=200), st.data())
def test_no_changed_or_lost_byte_passes(path: Path, content: bytes, data: st.DataObject) -> None:
    table = checksums(memoryview(content))
    assert len(table) == table_bytes(len(content))
    whole = os.urandom(OFFSET) + content + table
    path.write_bytes(whole)
    assert check(path, len(content)) == (True, True, content)
    bit = data.draw(st.integers(8 * OFFSET, 8 * len(whole) - 1))
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(changed)
    assert check(path, len(content))[:2] == (False, False)
    path.write_bytes(whole[: bit // 8])
    assert check(path, len(content))[:2] == (False, False)


def test_pages_that_changed_places_do_not_pass(path: Path) -> None:
    content = bytes(range(96))
    swapped = content[16:32] + content[:16] + content[32:]
    path.write_bytes(bytes(OFFSET) + swapped + checksums(memoryview(content)))
    assert check(path, len(content))[:2] == (False, False)
