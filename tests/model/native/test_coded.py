"""Weights of two bytes in twelve bits: nothing is lost, whatever they are."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.native.build import SOURCES
from draftwerk.model.native.compiler import find_compiler
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.isa import ISAS, available
from draftwerk.model.native.pool import Pool
from tests.model.native.models import (
    part,
    random_pages,
    random_tokens,
    random_weights,
    round_of,
    tiny_config,
)
from tests.support.instruction_sets import each_isa

TWIN = """
#include "matrix/coded.cpp"
extern "C" int panel() { return PANEL; }
extern "C" long coded_bytes(int k) { return coded::panel_bytes(k); }
extern "C" bool write(const uint16_t *words, int k, uint8_t *to) {
    return coded::write(words, k, to);
}
extern "C" void read(const uint8_t *panel, int k, uint8_t *words) {
    coded::read_all(panel, k, words);
}
"""
CHUNK, EXCEPTIONS = 64, 12
CONFIG = tiny_config(hidden_size=128, head_size=32, num_heads=6, num_kv_heads=2, ffn_size=200)
TOKENS = random_tokens(40)


@pytest.fixture(scope="module", params=each_isa())
def codes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The coding of panels, compiled for one instruction set."""
    isa, compiler = ISAS[request.param], find_compiler()
    if compiler is None or isa not in available():
        pytest.skip(f"{isa.name} does not run here")
    folder = tmp_path_factory.mktemp(isa.name)
    (folder / "twin.cpp").write_text(TWIN)
    command = [*compiler.command, *compiler.flags(isa), f"-I{SOURCES}", "-shared"]
    subprocess.run([*command, str(folder / "twin.cpp"), "-o", str(folder / "twin.so")], check=True)
    library = ctypes.CDLL(str(folder / "twin.so"))
    library.coded_bytes.restype, library.write.restype = ctypes.c_long, ctypes.c_bool
    return library


def gaussian(size: int, generator: np.random.Generator) -> np.ndarray:
    values = torch.from_numpy(generator.normal(0, 0.02, size)).to(torch.bfloat16)
    return values.view(torch.int16).numpy().view(np.uint16)


def few_uppers(size: int, generator: np.random.Generator) -> np.ndarray:
    """Return words of which only sixteen upper bytes are possible."""
    uppers = generator.choice(256, 16, replace=False).astype(np.uint16)
    return uppers[generator.integers(0, 16, size)] << 8 | generator.integers(
        0, 256, size, dtype=np.uint16
    )


def read_again(codes: ctypes.CDLL, words: np.ndarray, k: int) -> np.ndarray | None:
    """Return what a panel reads once it is coded; None where it cannot be."""
    panel, found = np.full(codes.coded_bytes(k), 0xA5, np.uint8), np.zeros_like(words)
    if not codes.write(_address(words), k, _address(panel)):
        return None
    codes.read(_address(panel), k, _address(found))
    return found


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("k", [64, 72, 120, 128, 576])
@pytest.mark.parametrize("draw", [gaussian, few_uppers])
def test_every_word_comes_back(
    codes: ctypes.CDLL, k: int, draw: Callable[[int, np.random.Generator], np.ndarray]
) -> None:
    for seed in range(5):
        words = draw(k * codes.panel(), np.random.default_rng(seed))
        found = read_again(codes, words, k)
        assert found is not None
        assert np.array_equal(found, words)


@pytest.mark.parametrize("count", [1, EXCEPTIONS, EXCEPTIONS + 1])
def test_words_without_a_code_are_exceptions_as_far_as_there_is_room(
    codes: ctypes.CDLL, count: int
) -> None:
    generator = np.random.default_rng(count)
    k = 3 * CHUNK
    in_chunk = CHUNK * codes.panel()
    words = (np.arange(k * codes.panel(), dtype=np.uint16) * 7 % 16) << 8
    odd = in_chunk + generator.choice(in_chunk, count, replace=False)  # in the second chunk
    words[odd] = (16 + np.arange(count, dtype=np.uint16)) << 8 | 0x5A
    found = read_again(codes, words, k)
    if count > EXCEPTIONS:
        assert found is None
    else:
        assert found is not None
        assert np.array_equal(found, words)


def with_rare_words(matrix: Tensor, rate: float, seed: int) -> Tensor:
    """Return a matrix of which some numbers are far smaller than others, by odd powers of two."""
    generator = torch.Generator().manual_seed(seed)
    rare = torch.rand(matrix.shape, generator=generator) < rate
    powers = torch.randint(-24, -8, matrix.shape, generator=generator)
    return torch.where(rare, matrix * 2.0**powers, matrix)


@pytest.fixture(scope="module")
def model(pool: Pool) -> NativeForward:
    """A model with tiles that have exceptions, and with matrices that are not coded."""
    weights = random_weights(CONFIG)
    first, second = weights.layers
    first = replace(
        first,
        qkv=with_rare_words(first.qkv, 5e-4, 0),
        gate_up=with_rare_words(first.gate_up, 5e-4, 1),
        down=with_rare_words(first.down, 0.2, 2),
    )
    layers = [first, replace(second, output=with_rare_words(second.output, 0.2, 3))]
    return NativeForward(CONFIG, replace(weights, layers=layers), "bf16", pool)


def logits(model: NativeForward, size: int) -> Tensor:
    """Return the logits of all tokens, computed `size` at a time."""
    pages = random_pages(CONFIG, model.page_dtype, 64, 16, model.page_width)
    rounds = [
        round_of([part(TOKENS[begin : begin + size], begin)])
        for begin in range(0, len(TOKENS), size)
    ]
    return torch.cat([model(batch, pages) for batch in rounds])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9, 20])
def test_rare_words_are_the_same_however_they_are_read(model: NativeForward, size: int) -> None:
    assert torch.equal(logits(model, size), logits(model, len(TOKENS)))


def test_coded_matrices_are_smaller(model: NativeForward, pool: Pool) -> None:
    plain = 2 * sum(
        rows * columns
        for rows, columns in [*2 * [(320, 128), (128, 192), (480, 128), (144, 200)], (144, 128)]
    )  # of tiles of 48 columns
    coded = NativeForward(CONFIG, random_weights(CONFIG), "bf16", pool)
    assert coded.reading()[0] < 0.84 * plain
    assert coded.reading()[0] < model.reading()[0] < plain * 1.1


@pytest.mark.parametrize("on_disk", (False, True))
def test_packed_memory_tells_what_is_coded_and_takes_no_more(
    pool: Pool, tmp_path: Path, on_disk: bool
) -> None:
    weights = random_weights(CONFIG)
    odd = replace(weights.layers[0], down=with_rare_words(weights.layers[0].down, 0.2, 2))
    weights = replace(weights, layers=[odd, weights.layers[1]])
    folder = str(tmp_path) if on_disk else ""
    memory = SharedMemory.make(0, folder=folder)
    try:
        found: list[Tensor] = []
        for _ in range(2):
            store = WeightStore(os.dup(memory.descriptor), b"k" * 32, folder)
            found.append(logits(NativeForward(CONFIG, weights, "bf16", pool, "auto", store), 3))
            for layer in weights.layers:
                for matrix in layer.matrices:
                    matrix.zero_()
        assert torch.equal(*found)
        if sys.platform == "linux":
            assert memory.allocated < 0.9 * os.fstat(memory.descriptor).st_size
    finally:
        memory.close()
