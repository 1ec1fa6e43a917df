"""Checkpoints that are quantised otherwise than is served: refused by the field or the part."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.changed_files import put, say
from tests.support.quantised_checkpoints import save_quantised

WEIGHTS = {"num_bits": 4, "strategy": "group", "group_size": 32}
STRATEGY = {**WEIGHTS, "strategy": "tensor_group"}
CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "another method": ("awq", {"quant_method": "hqq"}, "'hqq' is not supported; AWQ, GPTQ"),
    "bits": ("gptq", {"bits": 3}, "bits 3 of gptq is not supported (only 4)"),
    "a version": ("awq", {"version": "gemv"}, "version 'gemv' is not supported (gemm)"),
    "a rotation": ("gptq", {"rotation": "hadamard"}, "rotation 'hadamard' is not supported"),
    "other layers": ("gptq", {"dynamic": {"-:lm": {}}}, "dynamic {'-:lm': {}} is not supported"),
    "two versions": (
        "gptq",
        {"checkpoint_format": "gptq", "format": "gptq_v2"},
        "contradict each other",
    ),
    "no zeros": ("awq", {"zero_point": False}, "zero_point False is not supported"),
    "a word of no list": ("fp8", {"twist": 3}, "twist 3 is not supported"),
    "transforms": (
        "packed",
        {"transform_config": {"config_groups": {"R1": {}}}},
        "transform_config {'config_groups': {'R1': {}}} is not supported",
    ),
    "sparse matrices": (
        "packed",
        {"sparsity_config": {"format": "sparse-24-bitmask"}},
        "sparsity_config format 'sparse-24-bitmask' is not supported",
    ),
    "a strategy": (
        "packed",
        {"config_groups": {"a": {"targets": ["Linear"], "weights": STRATEGY}}},
        "strategy 'tensor_group' is not supported",
    ),
    "a group": ("gptq", {"group_size": 48}, "group_size 48 is no multiple of 32"),
    "a format": ("packed", {"format": "marlin-24"}, "format 'marlin-24' is not supported"),
    "e5m2": ("fp8", {"fmt": "e5m2"}, "fmt 'e5m2' is not supported (only e4m3)"),
    "blocks": ("fp8", {"weight_block_size": [64, 64]}, "weight_block_size [64, 64] is not"),
    "groups of layers": (
        "packed",
        {"config_groups": {"a": {"targets": ["Linear"]}, "b": {}}},
        "only one group of all Linear layers",
    ),
    "fewer bits": (
        "packed",
        {"config_groups": {"a": {"targets": ["Linear"], "weights": WEIGHTS | {"num_bits": 2}}}},
        "num_bits 2 of compressed-tensors is not supported",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_not_served_is_named(name: str, tmp_path: Path):
    form, fields, says = CONFIGS[name]
    save_quantised(tmp_path, form)
    say(tmp_path, "quantization_config", **fields)
    with pytest.raises(Refused, match=re.escape(says)):
        read_info(Location("tiny", tmp_path))


def tampered(directory: Path, form: str, **changes: Tensor | None) -> None:
    """Write a checkpoint of which some tensors of a matrix are others, or missing."""
    save_quantised(directory, form)
    put(directory, {f"model.layers.1.mlp.up_proj.{end}": each for end, each in changes.items()})


@pytest.mark.parametrize(
    ("part", "tensor", "says"),
    [
        ("qzeros", None, "the weights lack model.layers.1.mlp.up_proj.qzeros, which GPTQ needs"),
        ("scales", torch.ones(3, 256).half(), "up_proj.scales has shape (3, 256), not (4, 256)"),
        ("qweight", torch.zeros(16, 8, dtype=torch.int32), "scales has shape (4, 256), not (4, 8)"),
        ("qzeros", torch.zeros(4, 32).long(), "up_proj.qzeros of type I64 is not supported"),
        ("scales", torch.ones(4, 256).byte(), "up_proj.scales of type U8 is not supported"),
    ],
)
def test_parts_that_are_missing_or_of_another_shape_are_named(
    part: str, tensor: Tensor | None, says: str, tmp_path: Path
):
    tampered(tmp_path, "gptq", **{part: tensor})
    with pytest.raises(Refused, match=re.escape(says)):
        read_info(Location("tiny", tmp_path))


@pytest.mark.parametrize(
    ("form", "part", "tensor"),
    [
        ("packed", "weight_global_scale", torch.tensor([3.0])),
        ("fp8", "weight_scale_inv", torch.tensor([3.0])),
        ("fp8 blocks", "weight_scale", torch.tensor([3.0])),
        ("gptq", "twist", torch.tensor([3.0])),
    ],
)
def test_a_part_of_a_matrix_that_nobody_reads_is_named(
    form: str, part: str, tensor: Tensor, tmp_path: Path
):
    save_quantised(tmp_path, form)
    put(tmp_path, {f"model.layers.1.mlp.up_proj.{part}": tensor})
    with pytest.raises(Refused, match=f"up_proj.{part} is not supported with"):
        read_info(Location("tiny", tmp_path))


@pytest.mark.parametrize("form", ["packed", "fp8 rows"])
def test_scales_of_caches_are_left_where_the_config_has_them(form: str, tmp_path: Path):
    save_quantised(tmp_path, form)
    before = load(str(tmp_path), torch.float32).weights.layers[0].qkv
    put(tmp_path, {f"model.layers.0.self_attn.{of}_scale": torch.tensor([0.3]) for of in "kv"})
    with pytest.raises(Refused, match=r"unknown tensors: model.layers.0.self_attn.k_scale"):
        read_info(Location("tiny", tmp_path))
    say(tmp_path, "quantization_config", kv_cache_scheme={"num_bits": 8, "type": "float"})
    assert torch.equal(load(str(tmp_path), torch.float32).weights.layers[0].qkv, before)


@pytest.mark.parametrize(
    ("form", "part", "tensor", "says"),
    [
        (
            "int8 of one scale",
            "weight_zero_point",
            torch.tensor([1], dtype=torch.int8),
            "up_proj.weight_zero_point: it is not 0, which contradicts symmetric",
        ),
        (
            "gptq",
            "g_idx",
            torch.arange(128).flip(0).int() // 32,
            "up_proj.g_idx: inputs in another",
        ),
        ("gptq", "scales", torch.full((4, 256), 0.1), "its scales have more digits than float16"),
        (
            "fp8",
            "weight",
            torch.full((256, 128), 255).to(torch.uint8).view(torch.float8_e4m3fn),
            "up_proj.weight: a weight is no number",
        ),
    ],
)
def test_what_is_found_when_it_is_read_is_named(
    form: str, part: str, tensor: Tensor, says: str, tmp_path: Path
):
    tampered(tmp_path, form, **{part: tensor})
    layers = load(str(tmp_path), None, keeps_blocks=True).weights.layers
    with pytest.raises(Refused, match=re.escape(says)):
        list(layers)
