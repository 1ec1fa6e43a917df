"""Types of matrices in a mix, as llama.cpp's quantiser chooses them."""

from itertools import product

import pytest

from draftwerk.model.checkpoint.stored_matrix import KINDS
from draftwerk_tools.quantising.mixes import MIXES, Place, fitting, kind_of

LAYERS = 32
SIXES = [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
"""Layers of a model of 32 whose attn_v and ffn_down a Q4_K_M file of llama.cpp has in Q6_K."""


def kinds(mix: str, stem: str, width: int = 4096, shares_keys: bool = True) -> list[str]:
    places = [Place(layer, LAYERS, shares_keys) for layer in range(LAYERS)]
    return [
        kind_of(MIXES[mix], f"blk.{place.layer}.{stem}.weight", width, place, False)
        for place in places
    ]


@pytest.mark.parametrize(("mix", "other"), [("Q4_K_M", "Q4_K"), ("Q5_K_M", "Q5_K")])
def test_medium_mixes_have_six_bits_where_errors_cost_most(mix: str, other: str):
    expected = ["Q6_K" if layer in SIXES else other for layer in range(LAYERS)]
    assert kinds(mix, "attn_v") == kinds(mix, "ffn_down") == expected
    assert {*kinds(mix, "attn_q"), *kinds(mix, "ffn_up")} == {other}


def test_small_mixes():
    assert kinds("Q4_K_S", "attn_v") == ["Q5_K"] * 4 + ["Q4_K"] * 28
    assert kinds("Q3_K_M", "ffn_down") == ["Q5_K"] * 2 + ["Q4_K"] * 30
    assert {*kinds("Q2_K", "attn_v")} == {"Q4_K"}
    assert {*kinds("Q2_K", "attn_v", shares_keys=False)} == {"Q3_K"}


@pytest.mark.parametrize("mix", sorted(MIXES.keys() - {"F32", "BF16", "Q8_0", "MXFP4"}))
def test_the_head_has_six_bits_and_the_embedding_is_one_if_it_is_tied(mix: str):
    place = Place(0, LAYERS, True)
    assert kind_of(MIXES[mix], "output.weight", 4096, place, False) == "Q6_K"
    assert kind_of(MIXES[mix], "output.weight", 576, place, False) == "Q8_0"
    assert kind_of(MIXES[mix], "token_embd.weight", 4096, place, True) == "Q6_K"
    assert kind_of(MIXES[mix], "token_embd.weight", 4096, place, False) == MIXES[mix].kind


def test_experts_have_the_types_of_an_ffn_and_eight_of_them_more_beside():
    assert kinds("Q4_K_M", "ffn_down_exps") == kinds("Q4_K_M", "ffn_down")
    for experts, wanted in ((0, "Q4_K"), (8, "Q8_0"), (128, "Q4_K")):
        place = Place(5, LAYERS, True, experts)
        assert kind_of(MIXES["Q4_K_M"], "blk.5.attn_k.weight", 4096, place, False) == wanted
    place = Place(5, LAYERS, True, 32)
    assert kind_of(MIXES["MXFP4"], "blk.5.ffn_up_exps.weight", 4096, place, False) == "MXFP4"
    assert kind_of(MIXES["MXFP4"], "blk.5.attn_q.weight", 4096, place, False) == "Q8_0"


def test_widths_that_are_no_multiple_of_256():
    assert kinds("Q4_K_M", "attn_q", 576) == ["Q5_0"] * LAYERS
    assert kinds("Q3_K_S", "attn_q", 576) == ["IQ4_NL"] * LAYERS
    assert fitting("Q6_K", 576) == "Q8_0"
    assert fitting("Q4_0", 48) == fitting("Q6_K", 48) == "F16"


def test_every_type_of_a_mix_is_served():
    stems = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    for (mix, width), stem in product(product(MIXES.keys() - {"F32", "BF16"}, (4096, 576)), stems):
        assert KINDS.keys() >= {*kinds(mix, stem, width)}, (mix, stem)
