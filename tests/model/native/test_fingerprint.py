"""The same logits, bit for bit, as on every other machine: all formats and instruction sets.

After a change that is meant to change bits: `draftwerk doctor --fingerprint --write`.
"""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.native.isa import available
from draftwerk.model.native.pool import Pool
from draftwerk_tools.trials.digests import (
    KINDS,
    TINY,
    Fingerprints,
    expected,
    fingerprints,
    probes,
    tiny_fingerprints,
    write,
)
from draftwerk_tools.trials.tiny_model import tiny_config, tiny_weights
from tests.support.instruction_sets import each_isa

DEFAULT = "SmolLM2-135M-Instruct"
SAY = """
import msgspec
from draftwerk_tools.trials.digests import tiny_fingerprints
from draftwerk.model.native.pool import Pool

print(msgspec.json.encode(tiny_fingerprints(Pool(2))).decode())
"""
CUT = "cut"
LAYERS_CUT, VOCAB_CUT = 2, 8192
INSTRUCTION_SETS = [isa.name for isa in available()]


def elsewhere(**environment: str) -> dict[str, str]:
    """Return what another process finds with these variables: torch reads its own once in one."""
    said = subprocess.run(
        [sys.executable, "-c", SAY],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert said.returncode == 0, said.stderr
    return msgspec.json.decode(said.stdout, type=dict[str, str])


def of(*names: str) -> dict[str, str]:
    every = (*names, "noise", "draws", "blocks of ")
    return {key: digest for key, digest in expected().items() if key.startswith(every)}


@cache
def default_model() -> Checkpoint:
    return load(None, None)


def cut_fingerprints(pool: Pool) -> Fingerprints:
    """Return the digests of a part of the default model that has matrices of all its shapes."""
    model = default_model()
    weights = replace(
        model.weights,
        embedding=model.weights.embedding[:VOCAB_CUT],
        layers=model.weights.layers[:LAYERS_CUT],
        lm_head=model.weights.lm_head[:VOCAB_CUT],
    )
    config = msgspec.structs.replace(model.config, layer_count=LAYERS_CUT, vocab_size=VOCAB_CUT)
    return fingerprints(CUT, config, weights, pool)


def small_fingerprints(isa: str) -> Fingerprints:
    """Return the digests of made-up models and of the part, on one instruction set."""
    pool = Pool(2, isa)
    return tiny_fingerprints(pool) | cut_fingerprints(pool)


def default_fingerprints(isa: str) -> Fingerprints:
    """Return the digests of made-up models and of the whole default model."""
    model, pool = default_model(), Pool(2, isa)
    return tiny_fingerprints(pool) | fingerprints(model.name, model.config, model.weights, pool)


@cache
def best() -> Fingerprints:
    """Return what the last instruction set finds."""
    return small_fingerprints(INSTRUCTION_SETS[-1])


def test_made_up_models_and_the_default_one_have_the_committed_bits() -> None:
    assert default_fingerprints(INSTRUCTION_SETS[-1]) == of(*TINY, DEFAULT)


@pytest.mark.parametrize("isa", each_isa(INSTRUCTION_SETS[:-1]))
def test_so_they_have_on_each_instruction_set(isa: str) -> None:
    """Compares a part of the default model; `test-grid` has all of it."""
    found = small_fingerprints(isa)
    assert sum(name.startswith(CUT) for name in found) == len(KINDS)
    assert found.keys() > of(*TINY).keys()
    assert found == best()


@pytest.mark.grid
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_the_whole_default_model_has_the_committed_bits(isa: str) -> None:
    assert default_fingerprints(isa) == of(*TINY, DEFAULT)


def test_what_torch_and_its_libraries_run_on_does_not_matter(pool: Pool) -> None:
    assert (
        elsewhere(ATEN_CPU_CAPABILITY="default", MKL_CBWR="COMPATIBLE", NPY_DISABLE_CPU_FEATURES="")
        == tiny_fingerprints(pool)
        == of(*TINY)
    )


def test_the_number_of_threads_does_not_matter() -> None:
    assert tiny_fingerprints(Pool(1)) == tiny_fingerprints(Pool(5))


def test_one_bit_of_one_weight_does(pool: Pool) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    before = fingerprints("it", config, weights, pool)
    weights.layers[1].down[3, 5] *= 1 + 2**-7
    after = fingerprints("it", config, weights, pool)
    assert len(before) == len(KINDS)
    assert all(before[name] != after[name] for name in ("it fp32", "it bf16"))


def test_probes_cover_every_size_of_step() -> None:
    batches = list(probes(100))
    assert [len(batch.tokens) for batch in batches] == [42, 1, 2, 8, 16, 24, 64]
    assert any((batch.ancestors != -1).any() for batch in batches)
    assert all(len(batch.outputs) == len(batch.tokens) for batch in batches)


def test_new_digests_are_merged_with_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("draftwerk_tools.trials.digests.EXPECTED", tmp_path / "fingerprints.json")
    write({"one fp32": "1", "two fp32": "2"})
    write({"two fp32": "3"})
    assert expected() == {"one fp32": "1", "two fp32": "3"}
