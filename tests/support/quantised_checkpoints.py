"""Tiny quantised checkpoints, in AWQ to MXFP4, written from the definitions of their formats.

Each writer takes a matrix [n, k] of floats and returns the tensors that the format has of it, and
the values that these stand for.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.support.changed_files import say
from tests.support.tiny_models import save_tiny, tiny_model

GROUP = 32
SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column of each nibble of a word, the lowest first."""
Written = tuple[dict[str, Tensor], Tensor]
Writer = Callable[[Tensor], Written]


def grouped(matrix: Tensor, group: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return quants 0 .. 15 [n, k], scales and zeros [n, groups]."""
    blocks = matrix.reshape(len(matrix), -1, group)
    low, high = blocks.amin(dim=2), blocks.amax(dim=2)
    scales = ((high - low) / 15).clamp_min(1e-6).to(dtype)
    zeros = (-low / scales.float()).round().clamp(0, 15)
    quants = (blocks / scales.float()[..., None] + zeros[..., None]).round().clamp(0, 15)
    return quants.reshape(matrix.shape).long(), scales, zeros.long()


def values(quants: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Return what the quants stand for, in float32."""
    each = quants.reshape(len(quants), scales.shape[1], -1) - zeros[..., None]
    return (each * scales.float()[..., None]).reshape(quants.shape)


def words(nibbles: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Return nibbles [n, 8 m] as words [n, m]; nibble i of a word is that of column order[i]."""
    eights = nibbles.reshape(len(nibbles), -1, 8)[..., list(order)]
    found = (eights << torch.arange(0, 32, 4)).sum(dim=2)
    return torch.where(found >= 2**31, found - 2**32, found).int()


def gptq(matrix: Tensor, group: int = GROUP, offset: int = 1) -> Written:
    quants, scales, zeros = grouped(matrix, group, torch.float16)
    zeros = zeros.clamp_min(offset)
    return {
        "qweight": words(quants).T.contiguous(),
        "qzeros": words((zeros - offset).T),
        "scales": scales.T.contiguous(),
        "g_idx": (torch.arange(matrix.shape[1]) // group).int(),
    }, values(quants, scales, zeros)


def awq(matrix: Tensor, group: int = GROUP) -> Written:
    quants, scales, zeros = grouped(matrix, group, torch.float16)
    return {
        "qweight": words(quants.T, AWQ_COLUMNS),
        "qzeros": words(zeros.T, AWQ_COLUMNS),
        "scales": scales.T.contiguous(),
    }, values(quants, scales, zeros)


def packed(matrix: Tensor, group: int = GROUP, is_symmetric: bool = True) -> Written:
    quants, scales, zeros = grouped(matrix, group, torch.bfloat16)
    found = {
        "weight_packed": words(quants),
        "weight_scale": scales,
        "weight_shape": torch.tensor(matrix.shape),
    }
    if is_symmetric:
        zeros = torch.full_like(zeros, 8)
    else:
        found["weight_zero_point"] = words(zeros.T).T.contiguous()
    return found, values(quants, scales, zeros)


def int8(matrix: Tensor) -> Written:
    scales = matrix.abs().amax(dim=1, keepdim=True) / 127
    quants = (matrix / scales).round().to(torch.int8)
    return {"weight": quants, "weight_scale": scales}, quants * scales


def int8_whole(matrix: Tensor) -> Written:
    scale = matrix.abs().amax()[None] / 127
    quants = (matrix / scale).round().to(torch.int8)
    beside = {
        "input_scale": torch.tensor(0.3),
        "input_zero_point": torch.tensor([3]).to(torch.int8),
    }
    zero = {"weight_zero_point": torch.tensor([0]).to(torch.int8)}
    return {"weight": quants, "weight_scale": scale, **beside, **zero}, quants * scale


def fp8(matrix: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    quants = (matrix / scales).to(torch.float8_e4m3fn)
    return quants, quants.float() * scales


def fp8_rows(matrix: Tensor) -> Written:
    scales = matrix.abs().amax(dim=1, keepdim=True) / 448
    quants, found = fp8(matrix, scales)
    return {"weight": quants, "weight_scale": scales}, found


def fp8_whole(matrix: Tensor) -> Written:
    scale = matrix.abs().amax() / 448
    quants, found = fp8(matrix, scale)
    return {"weight": quants, "weight_scale": scale, "input_scale": torch.tensor(1.0)}, found


def fp8_inverse(matrix: Tensor) -> Written:
    """Return them as Ministral 3 has them."""
    found, values = fp8_whole(matrix)
    scale, activations = found["weight_scale"], found["input_scale"]
    names = {"weight_scale_inv": scale, "activation_scale": activations}
    return {"weight": found["weight"], **names}, values


def fp8_blocks(matrix: Tensor) -> Written:
    rows, inputs = (-(-size // 128) for size in matrix.shape)
    scales = torch.rand(rows, inputs, generator=torch.Generator().manual_seed(1)) * 0.01 + 0.01
    each = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[: matrix.shape[0]]
    quants, found = fp8(matrix, each)
    return {"weight": quants, "weight_scale_inv": scales}, found


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    """Return a config of compressed-tensors."""
    groups = {"group_0": {"targets": ["Linear"], "weights": {"symmetric": True, **weights}}}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": groups,
        "ignore": ["lm_head"],
    }


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": False}
PACKED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
FORMS: dict[str, tuple[dict[str, Any], Writer]] = {
    "gptq": (GPTQ, gptq),
    "gptq 128": (GPTQ | {"group_size": 128}, lambda of: gptq(of, 128)),
    "gptq v2": (GPTQ | {"checkpoint_format": "gptq_v2"}, lambda of: gptq(of, offset=0)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}, awq),
    "packed": (compressed("pack-quantized", **PACKED), packed),
    "packed, with zeros": (
        compressed("pack-quantized", **PACKED | {"symmetric": False}),
        lambda of: packed(of, is_symmetric=False),
    ),
    "packed channels": (
        compressed("pack-quantized", **PACKED | {"strategy": "channel", "group_size": None}),
        lambda of: packed(of, of.shape[1]),
    ),
    "int8": (compressed("int-quantized", num_bits=8, type="int", strategy="channel"), int8),
    "fp8 rows": (
        compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
        fp8_rows,
    ),
    "int8 of one scale": (
        compressed("int-quantized", num_bits=8, type="int", strategy="tensor"),
        int8_whole,
    ),
    "fp8 rows, activations as they are": (
        compressed("naive-quantized", num_bits=8, type="float", strategy="channel"),
        fp8_rows,
    ),
    "fp8": (FP8, fp8_whole),
    "fp8, inverse": (
        FP8 | {"weight_block_size": None, "activation_scheme": "static"},
        fp8_inverse,
    ),
    "fp8 blocks": (FP8 | {"weight_block_size": [128, 128]}, fp8_blocks),
}
"""By name: the config, and the writer."""


def mxfp4(values: Tensor, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Return blocks and scales of all experts' matrices [experts, in, out], and their values."""
    experts, inputs, outputs = values.shape
    generator = torch.Generator().manual_seed(seed)
    shape = experts, outputs, inputs // GROUP
    blocks = torch.randint(256, (*shape, GROUP // 2), dtype=torch.uint8, generator=generator)
    scales = torch.randint(119, 124, shape, dtype=torch.uint8, generator=generator)
    found = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return {"_blocks": blocks, "_scales": scales}, found


def save_mxfp4(directory: Path) -> PreTrainedModel:
    """Write a tiny gpt-oss whose experts are quantised; returns one of the same values."""
    model = tiny_model("gpt_oss", hidden_size=64, intermediate_size=96, head_dim=16)
    model.save_pretrained(directory)
    tensors: dict[str, Tensor] = {}
    with torch.no_grad():
        for index, (name, parameter) in enumerate(model.named_parameters()):
            if parameter.ndim == 3:
                written, values = mxfp4(parameter, index)
                tensors |= {name + end: each for end, each in written.items()}
                parameter.copy_(values)
            else:
                parameter.copy_(parameter.bfloat16())
                tensors[name] = parameter.bfloat16()
    _replace(directory, tensors, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    return model


def _replace(directory: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
    for path in directory.glob("*.safetensors*"):
        path.unlink()
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    say(directory, quantization_config=config)


def save_quantised(
    directory: Path, form: str, family: str = "llama", **changes: Any
) -> dict[str, Tensor]:
    """Write a checkpoint whose layers' matrices are quantised; returns all values in float32."""
    config, writer = FORMS[form]
    save_tiny(directory, family, **SIZES | changes)
    model = tiny_model(family, **SIZES | changes)
    tensors: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        value = parameter.detach()
        if value.ndim == 2 and ".layers." in name:
            written, expected[name] = writer(value)
            prefix = name.removesuffix("weight")
            tensors |= {prefix + part: each.contiguous() for part, each in written.items()}
        else:
            tensors[name] = value.to(torch.bfloat16)
            expected[name] = tensors[name].float()
    _replace(directory, tensors, config)
    return expected
