"""Packed weights in memory: the same bits, mapped by many, and nothing that is half packed."""

import ctypes
import os
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import msgspec
import pytest

from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.packed_weights import (
    HEADER_BYTES,
    WeightStore,
    identity_fingerprint,
)
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process import native_build
from draftwerk.model.process.build import build
from draftwerk.model.process.built import Built
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import first_row, proposed
from tests.support.runners import cache_with_kernels
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory.make(0)
    yield made
    made.close()


@pytest.fixture(params=["llama", "qwen2", "qwen3", "granitemoeshared", "lfm2"])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    save_tiny(path, request.param, seed=3)
    return path


def answers(
    directory: Path, memory: SharedMemory | None, dtype: str = "bf16", folder: Path | str = ""
) -> object:
    """Return a decision with log-probabilities: any other weight gives others."""
    return answer(built(directory, memory, dtype, folder))


def built(
    directory: Path, memory: SharedMemory | None, dtype: str = "bf16", folder: Path | str = ""
) -> Built:
    options = ModelOptions(
        source=str(directory),
        dtype=dtype,
        threads=2,
        weights_descriptor=-1 if memory is None else memory.descriptor,
        measures=bool(folder),
        weight_store=str(folder),
    )
    return build(options)


def answer(model: Built) -> object:
    runner = target_runner(model.parts)
    row = first_row(range(5, 25), Sampling(temperature=0.0, logprobs=5), blocks=(0, 1))
    return runner.step(proposed(row)).decisions


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
def test_weights_from_memory_are_those_that_were_packed(
    directory: Path, memory: SharedMemory, dtype: str
) -> None:
    plain = answers(directory, None, dtype)
    assert answers(directory, memory, dtype) == plain, "packed into the memory"
    assert answers(directory, memory, dtype) == plain, "found in the memory"


def test_nothing_is_packed_a_second_time(
    directory: Path, memory: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(directory, memory)
    monkeypatch.setattr(Tensors, "matrix", None)  # what reads those to be packed
    answers(directory, memory)


def test_memory_of_another_size_is_refused(memory: SharedMemory) -> None:
    store = WeightStore(memory.descriptor, b"k" * 32)
    store.open(4096)
    store.finish()
    with pytest.raises(ValueError, match="not this model's"):
        WeightStore(memory.descriptor, b"k" * 32).open(8192)
    with pytest.raises(Refused, match="start the server again"):
        WeightStore(memory.descriptor, b"l" * 32)


def test_half_packed_memory_is_packed_from_the_beginning(
    directory: Path, memory: SharedMemory
) -> None:
    plain = answers(directory, None)
    os.ftruncate(memory.descriptor, HEADER_BYTES + 4096)
    memory.size = HEADER_BYTES + 4096
    memory.map()[HEADER_BYTES:] = b"\xff" * 4096
    assert answers(directory, memory) == plain


def test_a_checkpoint_that_changed_leaves_what_others_compute_with(
    directory: Path, memory: SharedMemory
) -> None:
    live = built(directory, memory)
    before = answer(live)
    save_tiny(directory, "llama", seed=4)
    with pytest.raises(Refused, match="start the server again"):
        answers(directory, memory)
    assert answer(live) == before != answers(directory, None)


@pytest.mark.usefixtures("no_tokenizer", "own_cache")
@pytest.mark.parametrize("is_gguf", [False, True])
def test_a_link_to_a_file_and_its_mode_change_no_identity(
    directory: Path, tmp_path: Path, is_gguf: bool
) -> None:
    path = directory / "model.safetensors"
    if is_gguf:
        path = save_gguf(tmp_path / "tiny.gguf", "llama", "Q8_0")

    def identity() -> bytes:
        return identity_fingerprint(locate(str(path if is_gguf else directory)).directory, ())

    before = identity()
    os.link(path, tmp_path / "link")
    assert identity() == before
    path.chmod(0o600)
    assert identity() == before
    os.utime(path, ns=(1, 1))
    assert identity() != before


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SharedMemory]:
    made = SharedMemory.make(0, folder=str(tmp_path))
    yield made
    made.close()


@pytest.mark.usefixtures("no_tokenizer")
@pytest.mark.parametrize("dtype", ["stored", "int8"])
def test_experts_from_a_file_are_those_in_memory(
    tmp_path: Path, file: SharedMemory, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_with_kernels(tmp_path / "cache")))
    model = save_gguf(tmp_path / "experts.gguf", "qwen3_moe", "Q4_0")
    plain = answers(model, None, dtype)
    budgets = {"none": 0, "half": 150_000, "all": 2**40}
    for budget in budgets.values():
        monkeypatch.setattr(native_build, "free_bytes", lambda budget=budget: budget)
        found = built(model, file, dtype, tmp_path)
        assert answer(found) == plain
        size, ms = found.reading
        assert 0 < size < os.fstat(file.descriptor).st_size, "a token does not read every expert"
        assert ms > 0


def test_pages_of_a_file_can_be_dropped_at_any_time(tmp_path: Path, file: SharedMemory) -> None:
    store = WeightStore(file.descriptor, b"k" * 32, str(tmp_path))
    assert store.size == 0
    address = store.open(2**20)
    ctypes.memmove(address + 5, b"packed", 6)
    store.finish()
    for one in (store, WeightStore(file.descriptor, b"k" * 32, str(tmp_path))):
        assert one.is_packed
        address = one.open(2**20)
        one.drop()
        assert ctypes.string_at(address + 5, 6) == b"packed"
        assert one.size == HEADER_BYTES + 2**20


def test_a_disk_that_is_full_is_told_before_anything_is_packed(
    tmp_path: Path, file: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    store = WeightStore(file.descriptor, b"k" * 32, str(tmp_path))
    with pytest.raises(Refused, match=r"weight_store: .* no room for 2.0 GB .* No space left"):
        store.open(2 * 10**9)
    assert not store.is_packed


def test_options_cross_to_a_process_with_their_descriptors() -> None:
    options = ModelOptions(weights_descriptor=7, pages_descriptor=8)
    assert msgspec.json.decode(msgspec.json.encode(options), type=ModelOptions) == options
