"""Packed weights that are kept: the same bits, mapped by many, and nothing of a bad file."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint import packed_weights
from draftwerk.model.checkpoint.loader import Tensors
from draftwerk.model.checkpoint.packed_weights import HEADER_BYTES, PREFIX, WeightStore
from draftwerk.model.process import build, parts
from draftwerk.model.process.build import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.protocol.rounds import NO_DRAFT, NewSequence, Proposal
from draftwerk.speculative.sampling.params import Sampling
from tests.support.rounds import make_round, make_row
from tests.support.tiny_models import save_tiny


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory.make(0)
    yield made
    made.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "cache"
    monkeypatch.setattr(parts, "cache_directory", lambda: found)
    monkeypatch.setattr(build, "cache_directory", lambda: found)
    monkeypatch.setattr(packed_weights, "KEPT_MIN", 0)
    found.mkdir()
    return found


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    save_tiny(path, request.param, seed=3)
    return path


def answers(directory: Path, memory: SharedMemory | None, dtype: str = "bf16") -> object:
    """Return a decision with log-probabilities: any other weight gives others."""
    options = ModelOptions(
        source=str(directory),
        dtype=dtype,
        threads=2,
        weights_descriptor=-1 if memory is None else memory.descriptor,
        measures=False,
    )
    runner = TargetRunner(build.build(options).parts)
    tokens = tuple(range(5, 25))
    row = make_row(
        0,
        len(tokens),
        blocks=(0, 1),
        new_sequence=NewSequence(tokens, len(tokens), Sampling(temperature=0.0, logprobs=5)),
    )
    verdict = runner.step(Proposal(make_round(row, round_id=1), (NO_DRAFT,)))
    return verdict.decisions


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
def test_weights_from_memory_and_from_a_file_are_those_that_were_packed(
    directory: Path, memory: SharedMemory, cache: Path, dtype: str
) -> None:
    plain = answers(directory, None, dtype)
    assert answers(directory, memory, dtype) == plain, "packed into the memory"
    assert len(list(cache.glob(f"{PREFIX}*.bin"))) == 1
    assert answers(directory, memory, dtype) == plain, "found in the memory"
    other = SharedMemory.make(0)
    assert answers(directory, other, dtype) == plain, "read from the file"
    other.close()


def test_nothing_is_packed_a_second_time(
    directory: Path, memory: SharedMemory, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(directory, memory)
    monkeypatch.setattr(Tensors, "matrix", None)  # what reads those to be packed
    for store in (memory, SharedMemory.make(0)):
        answers(directory, store)


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    match how:
        case "cut short":
            del data[-1:]
        case "of a process that was killed":
            data[48:56] = bytes(8)
        case "another model's":
            data[8] ^= 1
        case "no such file":
            data[:] = b"text"
        case "one bit flipped":
            data[HEADER_BYTES + 1000] ^= 1
        case "zeroes in the middle":
            data[len(data) // 2 : len(data) // 2 + 4096] = bytes(4096)
        case "checksums altered":
            data[-1] ^= 1
        case _:
            del data[:]
    path.write_bytes(data)


@pytest.mark.parametrize(
    "how",
    [
        "cut short",
        "of a process that was killed",
        "another model's",
        "no such file",
        "empty",
        "one bit flipped",
        "zeroes in the middle",
        "checksums altered",
    ],
)
def test_a_bad_file_is_packed_anew(
    directory: Path,
    memory: SharedMemory,
    cache: Path,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = answers(directory, memory)
    (path,) = cache.glob(f"{PREFIX}*.bin")
    whole = path.read_bytes()
    assert [*packed_weights.damaged_files(cache)] == [(path, False)]
    damage(path, how)
    assert [*packed_weights.damaged_files(cache)] == [(path, how != "another model's")]
    other = SharedMemory.make(0)
    assert answers(directory, other) == plain
    assert path.read_bytes() == whole
    (said,) = [each.getMessage() for each in caplog.records if each.name == "draftwerk"]
    assert str(path) in said and "packed anew" in said
    other.close()


def test_half_packed_memory_is_packed_from_the_beginning(
    directory: Path, memory: SharedMemory, cache: Path
) -> None:
    plain = answers(directory, None)
    os.ftruncate(memory.descriptor, HEADER_BYTES + 4096)
    memory.size = HEADER_BYTES + 4096
    memory.map()[HEADER_BYTES:] = b"\xff" * 4096
    assert answers(directory, memory) == plain


def test_a_checkpoint_that_changed_is_packed_anew(
    directory: Path, memory: SharedMemory, cache: Path
) -> None:
    before = answers(directory, memory)
    save_tiny(directory, "llama", seed=4)
    os.utime(directory / "model.safetensors", (time.time() - 60, time.time() - 60))
    other = SharedMemory.make(0)
    after = answers(directory, other)
    assert after == answers(directory, None) != before
    other.close()


def test_a_folder_that_cannot_be_written_only_costs_time(
    directory: Path, memory: SharedMemory, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: WeightStore) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(WeightStore, "_write", refuse)
    assert answers(directory, memory) == answers(directory, None)
    assert not list(cache.glob(f"{PREFIX}*"))


def packed_files(folder: Path, count: int, size: int) -> None:
    """Write files of which the first was used last."""
    for age in range(count):
        path = folder / f"{PREFIX}{age}.bin"
        path.write_bytes(bytes(size))
        os.utime(path, (1000 - age, 1000 - age))


def ages(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix(PREFIX)) for path in folder.iterdir())


def test_files_used_longest_ago_go_where_there_are_many(tmp_path: Path) -> None:
    packed_files(tmp_path, 12, 0)
    assert packed_weights._make_room(tmp_path, 0, 100)
    assert ages(tmp_path) == [*range(packed_weights.FILES_MAX - 1)]


def test_files_used_longest_ago_go_where_room_is_short(tmp_path: Path) -> None:
    packed_files(tmp_path, 5, 10)
    assert packed_weights._make_room(tmp_path, 25, 50)
    assert ages(tmp_path) == [0, 1]


def test_no_file_goes_for_one_that_cannot_fit(tmp_path: Path) -> None:
    packed_files(tmp_path, 3, 10)
    assert not packed_weights._make_room(tmp_path, 51, 50)
    assert ages(tmp_path) == [0, 1, 2]


def test_packed_files_take_a_share_of_the_disk(tmp_path: Path) -> None:
    packed_files(tmp_path, 1, 2**20)
    usage = shutil.disk_usage(tmp_path)
    assert 0 < packed_weights.bytes_max(tmp_path) < usage.total


def test_a_full_disk_only_costs_time(
    directory: Path, memory: SharedMemory, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_weights, "DISK_SHARE", 0.0)
    assert answers(directory, memory) == answers(directory, None)
    assert not list(cache.glob(f"{PREFIX}*"))


def test_options_cross_to_a_process_with_their_descriptors() -> None:
    options = ModelOptions(weights_descriptor=7, pages_descriptor=8)
    assert msgspec.json.decode(msgspec.json.encode(options), type=ModelOptions) == options
