"""Packed weights in memory: the same bits, mapped by many, and nothing that is half packed."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.packed_weights import HEADER_BYTES, WeightStore
from draftwerk.model.process.build import build
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


@pytest.fixture(params=["llama", "qwen2", "qwen3", "granitemoeshared", "lfm2"])
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
    runner = TargetRunner(build(options).parts)
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
    assert not WeightStore(memory.descriptor, b"l" * 32).is_packed


def test_half_packed_memory_is_packed_from_the_beginning(
    directory: Path, memory: SharedMemory
) -> None:
    plain = answers(directory, None)
    os.ftruncate(memory.descriptor, HEADER_BYTES + 4096)
    memory.size = HEADER_BYTES + 4096
    memory.map()[HEADER_BYTES:] = b"\xff" * 4096
    assert answers(directory, memory) == plain


def test_a_checkpoint_that_changed_is_packed_anew(directory: Path, memory: SharedMemory) -> None:
    before = answers(directory, memory)
    save_tiny(directory, "llama", seed=4)
    after = answers(directory, memory)
    assert after == answers(directory, None) != before


def test_options_cross_to_a_process_with_their_descriptors() -> None:
    options = ModelOptions(weights_descriptor=7, pages_descriptor=8)
    assert msgspec.json.decode(msgspec.json.encode(options), type=ModelOptions) == options
