"""Every family on the device in formats of few bits: the texts of what its weights stand for.

On the CPU the numbers of products are those of the kernels' twins: the interpreter, which compares
both elsewhere, takes minutes for experts.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint.gguf_card import write_card
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from tests.model.checkpoint.test_gguf_families import CASES as FILES
from tests.model.gpu.support.device import DEVICE
from tests.model.gpu.test_families import ALWAYS, COUNT, GREEDY, PROMPT, device_runner, drafted
from tests.support import runners
from tests.support.model_driver import generate
from tests.support.runners import FP32, make_runner
from tests.support.sampled import in_gate
from tests.support.tiny_gguf import SIZES, described, said_by_files, save_gguf
from tests.support.tiny_models import CASES, save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu import build, device_blocks
from draftwerk.model.gpu.kernels import w8a8, weight_only
from draftwerk.model.gpu.kernels.quantised import Quantised, by_rows, to_int4, to_int8

KINDS = ("Q8_0", "Q4_0", "Q5_1", "Q4_1", "Q5_0")
"""Taken in turn; of the others any bytes are compared elsewhere."""
ALWAYS_FILES = ("qwen3_moe", "gemma2", "gpt_oss", "granitemoehybrid", "gemma4_text", "lfm2")
FEW_BITS = {"int8": to_int8, "int4": to_int4}


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have activations in float32, in which texts are compared."""
    for name, kept in build.FORMATS.items():
        monkeypatch.setitem(build.FORMATS, name, kept._replace(dtype=FP32))


@pytest.fixture(autouse=True)
def twins(monkeypatch: pytest.MonkeyPatch, no_tokenizer: None) -> None:
    def rows(weight: Quantised, dtype: torch.dtype, chosen: Tensor | None = None) -> Tensor:
        found = weight.dequantised(dtype)
        return found if chosen is None else found[chosen.long()]

    if DEVICE.type == "cpu":
        monkeypatch.setattr(
            weight_only, "product", lambda values, weight, _: weight.product(values)
        )
        monkeypatch.setattr(weight_only, "dequantised", rows)
        monkeypatch.setattr(device_blocks, "dequantised", rows)
        monkeypatch.setattr(w8a8, "rounded", w8a8.by_row)
        monkeypatch.setattr(w8a8, "byte_product", bytes_multiplied)


def bytes_multiplied(
    tokens: Tensor, token_scales: Tensor, weights: Tensor, weight_scales: Tensor, dtype: torch.dtype
) -> Tensor:
    sums = (tokens.int() @ weights.int().T).float()
    return (sums * token_scales[:, None] * weight_scales).to(dtype)


def runner_of(directory: Path, change: Callable[[Tensor], Tensor], head: Callable) -> TargetRunner:
    """Return the CPU's float32 runner of matrices that are changed."""
    model = load(str(directory), FP32)
    weights, inputs = model.weights, model.weights.inputs
    held = replace(
        weights,
        layers=[layer.with_matrices(change) for layer in weights.layers],
        lm_head=head(weights.lm_head),
        inputs=inputs and replace(inputs, projection=change(inputs.projection)),
    )
    return target_runner(runners._parts(replace(model, weights=held), 128, 4))


@pytest.mark.parametrize("name", in_gate(FILES, ALWAYS_FILES))
def test_texts_of_a_file_are_those_of_its_numbers(name: str, tmp_path: Path):
    family, changes = FILES[name]
    sizes: dict[str, Any] = said_by_files(family, dict(changes)) | SIZES
    if "rope_parameters" in changes:  # of heads of eight
        sizes |= {"hidden_size": 32, "head_dim": 8}
    if sizes.get("hidden_size_per_layer_input"):
        sizes["hidden_size_per_layer_input"] = 32
    kind = KINDS[list(FILES).index(name) % len(KINDS)]
    path = save_gguf(tmp_path / "m.gguf", family, kind, **sizes)
    out = tmp_path / "out"
    write_card(described(path, out), out)
    expected = generate(make_runner(out), PROMPT, GREEDY, COUNT)
    assert generate(device_runner(out, dtype="stored"), PROMPT, GREEDY, COUNT) == expected
    assert drafted(device_runner(out, dtype="stored"), expected, 1).output == expected


@pytest.mark.parametrize("dtype", FEW_BITS)
@pytest.mark.parametrize("name", in_gate(("qwen3_moe", *ALWAYS), ("gpt_oss",)))
def test_texts_are_those_of_what_few_bits_stand_for(name: str, dtype: str, tmp_path: Path):
    family, changes = CASES[name]
    save_tiny(tmp_path, family, **changes)

    def stood_for(kind: Callable[[Tensor], Quantised]) -> Callable[[Tensor], Tensor]:
        return lambda matrix: by_rows(kind, matrix).dequantised(FP32)

    expected = generate(
        runner_of(tmp_path, stood_for(FEW_BITS[dtype]), stood_for(to_int8)), PROMPT, GREEDY, COUNT
    )
    assert generate(device_runner(tmp_path, dtype=dtype), PROMPT, GREEDY, COUNT) == expected
    assert drafted(device_runner(tmp_path, dtype=dtype), expected, 1).output == expected


@pytest.mark.parametrize("dtype", ["fp8", "w8a8"])
@pytest.mark.parametrize("name", in_gate(("qwen3_moe", *ALWAYS), ("gemma2",)))
def test_texts_do_not_depend_on_drafts_where_activations_are_rounded(
    name: str, dtype: str, tmp_path: Path
):
    family, changes = CASES[name]
    save_tiny(tmp_path, family, **changes)
    expected = generate(device_runner(tmp_path, dtype=dtype), PROMPT, GREEDY, COUNT)
    assert drafted(device_runner(tmp_path, dtype=dtype), expected, 1).output == expected
