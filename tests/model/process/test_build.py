"""Options become a model, or are refused by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import build
from draftwerk.speculative.rounds import NO_DRAFT
from tests.support.tiny_models import VOCAB, oracle_logits, save_tiny
from tests.support.undeclared_models import save_undeclared

REFUSALS = {
    "dtype": ({"dtype": "fp8"}, "dtype 'fp8' is not one of fp32, bf16, int8, int4"),
    "device": ({"device": "tpu"}, "device 'tpu' is not one of auto, cpu, cuda"),
    "attention": ({"attention": "quick"}, "attention 'quick' is not one of auto, native, padded"),
    "torch and int8": (
        {"attention": "padded", "dtype": "int8"},
        "dtype 'int8' needs the native kernels",
    ),
    "torch and int8 pages": (
        {"attention": "padded", "kv_dtype": "int8"},
        "kv_dtype 'int8' needs the native kernels of a CPU",
    ),
    "torch and a file": (
        {"attention": "padded", "weight_store": "/x"},
        "weight_store needs the native kernels of a CPU",
    ),
    "fp8 pages": ({"kv_dtype": "fp8"}, "kv_dtype 'fp8' needs a GPU, and Triton"),
    "torch and fp8 pages": (
        {"attention": "padded", "kv_dtype": "fp8"},
        "kv_dtype 'fp8' needs a GPU, and Triton",
    ),
    "pages": ({"kv_dtype": "int3"}, "kv_dtype 'int3' is not one of auto, int8, int4, fp8"),
    "Transformers and int8": (
        {"backend": "transformers", "dtype": "int8"},
        "backend transformers serves bf16 or fp32 on device cpu alone",
    ),
    "Transformers and ranks": (
        {"backend": "transformers", "tensor_parallel": 2},
        "backend transformers serves no adapters, and a model whole",
    ),
    "Transformers and int8 pages": (
        {"backend": "transformers", "kv_dtype": "int8"},
        "backend transformers serves bf16 or fp32 on device cpu alone",
    ),
}
SAY = """
import sys
from draftwerk.model.process.build import *

for attention in ("auto", "native"):
    built = build(ModelOptions(source=sys.argv[1], attention=attention), print)
    print(built.device, built.attention, built.exact)
"""


@pytest.mark.parametrize(("options", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_an_option_that_cannot_be_obeyed_is_refused(options, reason, tmp_path: Path):
    save_tiny(tmp_path, "llama")
    with pytest.raises(Refused, match=reason):
        build(ModelOptions(source=str(tmp_path), **options))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kv_dtype": "int8"}, "kv_dtype int8: layers that convolve keep their inputs in bf16"),
        ({"pipeline_parallel": 2}, "Lfm2ForCausalLM: a convolution is not served by several ranks"),
        (
            {"tensor_parallel": 2},
            "Qwen3_5ForCausalLM: a recurrent state is not served by several ranks",
        ),
    ],
)
def test_what_other_mixers_do_not_do_is_refused(options, reason, tmp_path: Path):
    save_tiny(tmp_path, "qwen3_5_text" if reason.startswith("Qwen") else "lfm2")
    with pytest.raises(Refused, match=reason):
        build(ModelOptions(source=str(tmp_path), **options), print)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match="torch sees none here"):
        build(ModelOptions(device="cuda"))


def test_without_a_compiler_torch_does_the_work(tmp_path: Path):
    """The library is built once a process, hence another process."""
    save_tiny(tmp_path / "tiny", "llama")
    environment = {**os.environ, "CXX": "/nowhere/c++", "XDG_CACHE_HOME": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", SAY, str(tmp_path / "tiny")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "torch will be slower" in said.stdout
    assert said.stdout.endswith("cpu padded False\n")
    assert "Refused: attention native: " in said.stderr


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_model_of_transformers_is_built_once_it_has_passed_its_test(dtype, tmp_path: Path):
    oracle = save_undeclared(tmp_path, "phi")
    said: list[str] = []
    options = ModelOptions(source=str(tmp_path), backend="transformers", dtype=dtype, threads=1)
    built = build(options, said.append)
    assert (built.device, built.attention, built.exact, built.threads) == ("cpu", "tiled", True, 1)
    assert built.kernels.startswith("none: Transformers ") and "slower" in built.kernels
    assert any("in several ways" in line for line in said)
    layout = BatchBuilder(options.block_size)
    layout.add([*range(40)], 0, (2, 0, 1), NO_DRAFT, samples=True)
    logits, truth = built.parts.run(layout)[0], oracle_logits(oracle, [*range(40)])[-1]
    assert (logits - truth).abs().max() < (1e-4 if dtype == "fp32" else 0.3)
    assert len(logits) == built.parts.vocab_size == VOCAB
