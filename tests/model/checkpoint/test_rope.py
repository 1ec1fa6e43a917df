"""Rotary frequencies: the published rules, and the same bits whatever computes beside them."""

import struct

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftwerk.model.checkpoint.rope import rotary
from tests.support.tiny_models import ROPES

# The bits of the default model's and of a scaled model's frequencies, a few of each: no instruction
# set, torch or C library may change them.
BITS = {
    "plain": ((64, 100_000.0, {}), {0: "3f800000", 1: "3f32a506", 13: "3c187705", 31: "37706b6c"}),
    "llama3": (
        (128, 500_000.0, {**ROPES["llama3"], "original_max_position_embeddings": 8192}),
        {0: "3f800000", 1: "3f508ac1", 30: "3ab3d11c", 63: "34a4c2ff"},
    ),
}


def bits(value: float) -> str:
    return struct.pack(">f", value).hex()


@pytest.mark.parametrize(("arguments", "expected"), BITS.values(), ids=BITS)
def test_frequencies_are_these_bits(arguments, expected) -> None:
    found, _ = rotary(*arguments, 8192)
    assert {index: bits(found[index]) for index in expected} == expected


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
@pytest.mark.parametrize("head_size", [8, 64, 128])
def test_the_rules_are_those_of_transformers(kind: str, head_size: int) -> None:
    scaling = {"rope_theta": 10_000.0, **ROPES[kind]}
    config = LlamaConfig(
        hidden_size=4 * head_size,
        num_attention_heads=4,
        max_position_embeddings=512,
        rope_parameters=scaling,
    )
    expected, magnitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    found, factor = rotary(head_size, 10_000.0, scaling, 512)
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-6, atol=0)
    assert factor == pytest.approx(magnitude, rel=1e-6)


@pytest.mark.parametrize("context_max", [512, 513])
def test_one_list_of_longrope_is_for_all_texts_of_a_model(context_max: int) -> None:
    rule = {"rope_theta": 10_000.0, **ROPES["longrope"]}
    config = LlamaConfig(
        hidden_size=48,
        num_attention_heads=4,
        max_position_embeddings=context_max,
        rope_parameters=rule,
    )
    length = 513 if context_max > 512 else 512
    expected, magnitude = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu", seq_len=length)
    found, factor = rotary(12, 10_000.0, rule, context_max)
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-6, atol=0)
    assert factor == pytest.approx(magnitude, rel=1e-6)
