"""Checkpoints that are quantised, in AWQ to MXFP4: their values, exactly, or a refusal."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.stored_matrix import STORED, StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import LayerWeights, WeightMatrix
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised
from tests.model.native.models import part, random_pages, round_of
from tests.support.quantised_checkpoints import (
    FORMS,
    GROUP,
    Written,
    save_mxfp4,
    save_quantised,
    words,
)
from tests.support.runners import plain_logits
from tests.support.thread_ranks import Grid, differing
from tests.support.tiny_models import VOCAB, oracle_logits

KINDS = {
    "gptq": "G4_32",
    "gptq 128": "G4_128",
    "packed channels": "G4_128",
    "int8": "G8_128",
    "fp8": "F8_128",
}
PARTS = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}


def whole(matrix: WeightMatrix, values: Callable[[StoredMatrix], Tensor]) -> Tensor:
    assert isinstance(matrix, tuple)
    return torch.cat([values(part) for part in matrix])


def stacked(expected: dict[str, Tensor], layer: int, name: str) -> Tensor:
    room = "mlp" if name == "gate_up" else "self_attn"
    prefix = f"model.layers.{layer}.{room}."
    return torch.cat([expected[f"{prefix}{each}.weight"] for each in PARTS[name]])


@pytest.mark.parametrize("form", FORMS)
def test_blocks_stand_for_the_values_of_the_format(form: str, tmp_path: Path):
    expected = save_quantised(tmp_path, form)
    weights = load(str(tmp_path), None, keeps_blocks=True).weights
    for layer in range(2):
        of = weights.layers[layer]
        for name in PARTS:
            values = stacked(expected, layer, name)
            for read in (plain_values, dequantised):
                assert torch.equal(whole(getattr(of, name), read), values)
        down = expected[f"model.layers.{layer}.mlp.down_proj.weight"]
        assert torch.equal(whole(of.down, plain_values), down)
    embedding = expected["model.embed_tokens.weight"]
    assert torch.equal(whole(weights.embedding, plain_values), embedding)
    if form in KINDS:
        assert {part.kind for part in weights.layers[0].qkv} == {KINDS[form]}


def symmetric(matrix: Tensor, zero: int) -> Written:
    """Return GPTQ's tensors of quants around 8, with another number where zeros are."""
    scales = (matrix.reshape(len(matrix), -1, GROUP).abs().amax(2) / 7).half()
    each = scales.float().repeat_interleave(GROUP, 1)
    quants = (matrix / each).round().clamp(-8, 7).long() + 8
    return {
        "qweight": words(quants).T.contiguous(),
        "qzeros": words(torch.full_like(scales, zero, dtype=torch.long).T),
        "scales": scales.T.contiguous(),
    }, (quants - 8) * each


@pytest.mark.parametrize("form", ["gptq", "gptq v2"])
@pytest.mark.parametrize("zero", [7, 8])
def test_the_zero_of_symmetric_quants_is_eight_however_it_is_stored(
    zero: int, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config, _ = FORMS[form]
    own = config | {"sym": True}
    monkeypatch.setitem(FORMS, form, (own, lambda matrix: symmetric(matrix, zero)))
    expected = save_quantised(tmp_path, form)
    for keeps_blocks in (False, True):
        model = load(str(tmp_path), torch.float32, keeps_blocks=keeps_blocks)
        found = model.weights.layers[1].qkv
        values = whole(found, plain_values) if keeps_blocks else found
        assert torch.equal(values, stacked(expected, 1, "qkv"))


def test_another_zero_contradicts_the_symmetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config, _ = FORMS["gptq"]
    own = config | {"sym": True}
    monkeypatch.setitem(FORMS, "gptq", (own, lambda matrix: symmetric(matrix, 5)))
    save_quantised(tmp_path, "gptq")
    with pytest.raises(Refused, match=r"qzeros: a zero is not 8, which contradicts sym"):
        list(load(str(tmp_path), None).weights.layers)


@pytest.mark.parametrize("form", FORMS)
def test_without_blocks_they_are_rounded_to_bf16(form: str, tmp_path: Path):
    expected = save_quantised(tmp_path, form)
    layers = load(str(tmp_path), None).weights.layers
    assert torch.equal(layers[1].qkv, stacked(expected, 1, "qkv").to(torch.bfloat16))


@pytest.mark.parametrize("form", ["awq", "gptq 128", "packed, with zeros", "int8", "fp8 blocks"])
def test_ranks_give_the_bits_of_one_process(form: str, tmp_path: Path):
    save_quantised(tmp_path, form)
    model = load(str(tmp_path), None, keeps_blocks=True)
    assert not differing(model, str(tmp_path), "stored", (Grid(2, 1), Grid(1, 2)))


def test_its_info_names_what_it_is_served_as(tmp_path: Path):
    save_quantised(tmp_path, "awq")
    info = read_info(Location("tiny", tmp_path))
    assert info.stored_format == "stored" and info.file_format == "AWQ"
    assert info.stored_kinds == {"G4_32": 2 * 128 * (2 * 128 + 2 * 64 + 3 * 256) // 2}


@pytest.mark.parametrize("has_experts", [False, True])
def test_shapes_alone_are_known_where_matrices_are_packed_already(
    has_experts: bool, tmp_path: Path
):
    if has_experts:
        save_mxfp4(tmp_path)
    else:
        save_quantised(tmp_path, "fp8 blocks")
    read, unread = (
        load(str(tmp_path), None, keeps_blocks=True, matrices=each).weights.layers[0]
        for each in (True, False)
    )
    for one, other in zip(parts_of(read), parts_of(unread), strict=True):
        assert (one.kind, one.shape, one.data.shape) == (other.kind, other.shape, other.data.shape)


def parts_of(layer: LayerWeights) -> list[StoredMatrix]:
    if layer.experts is not None:
        return [*layer.experts.gate_up[3]]
    return [part for name in ("qkv", "output", "gate_up", "down") for part in getattr(layer, name)]


def test_experts_in_mxfp4_keep_their_size_and_their_values(tmp_path: Path):
    oracle = save_mxfp4(tmp_path)
    experts = load(str(tmp_path), None, keeps_blocks=True).weights.layers[1].experts
    rounded = load(str(tmp_path), None).weights.layers[1].experts
    of = oracle.model.layers[1].mlp.experts
    for expert in range(5):
        both = of.gate_up_proj[expert].T
        for name, values in (
            ("gate_up", torch.cat([both[::2], both[1::2]])),
            ("down", of.down_proj[expert].T),
        ):
            parts, plain = getattr(experts, name)[expert], getattr(rounded, name)[expert]
            assert {part.kind for part in parts} == {"MXFP4"}
            assert sum(part.data.nbytes for part in parts) == values.numel() * 17 // 32
            for read in (plain_values, dequantised):
                assert torch.equal(whole(parts, read), values)
            assert torch.equal(plain, values.bfloat16())
    assert torch.equal(experts.biases(2)[1], of.down_proj_bias[2])
    info = read_info(Location("tiny", tmp_path))
    assert (info.file_format, info.stored_format) == ("MXFP4", "stored")


def test_logits_of_experts_in_mxfp4_are_those_of_transformers(tmp_path: Path):
    oracle, tokens = save_mxfp4(tmp_path), Random(1).choices(range(VOCAB), k=150)
    truth = oracle_logits(oracle, tokens)
    plain = load(str(tmp_path), torch.float32)
    assert (plain_logits(plain.config, plain.weights, tokens) - truth).abs().max() < 1e-4
    blocks = load(str(tmp_path), None, keeps_blocks=True)
    native = NativeForward(blocks.config, blocks.weights, STORED, Pool(2))
    pages = random_pages(native._config, native.page_dtype, width=native.page_width)
    rough = native(round_of([part(tokens)]), pages)
    assert (rough - truth).abs().mean() < 0.05 * truth.abs().max()
