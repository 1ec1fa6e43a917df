"""A model that is not the same in every company does not serve, and the numbers are told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import read_causal
from draftwerk.model.generic.self_test import check_model
from tests.support.changed_files import say
from tests.support.one_thread import one_torch_thread as one_torch_thread
from tests.support.tiny_models import SIZES, random_model
from tests.support.undeclared_models import UNDECLARED, generic_forward, save_undeclared


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("family", UNDECLARED)
def test_a_family_that_computes_rows_apart_passes(family: str, dtype: str, tmp_path: Path):
    save_undeclared(tmp_path, family)
    check_model(generic_forward(tmp_path, dtype), read_causal(tmp_path))


def shifted(rows: Tensor) -> Tensor:
    """Let a row see the one before it in the batch."""
    return rows + 0.01 * rows.roll(1, 1)


def by_count(rows: Tensor) -> Tensor:
    return rows * (1 + 1e-6 * rows.shape[1])


FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "rows that meet": (shifted, r"logits of a text beside another are up to [\d.e-]+ from"),
    "the size of the batch": (by_count, r"logits of a text .* are up to [\d.e-]+ from"),
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.values(), ids=FAULTS)
def test_rows_that_depend_on_others_are_found(fault, reason, tmp_path: Path):
    save_undeclared(tmp_path, "phi")
    forward = generic_forward(tmp_path)
    layer: Any = forward.model.get_submodule("model.layers.0.mlp")
    layer.register_forward_hook(lambda module, given, found: fault(found))
    with pytest.raises(Refused, match=reason):
        check_model(forward, read_causal(tmp_path))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["scaling", "sliding_window"])
def test_attention_unlike_transformers_own_is_found(name: str, dtype: str, tmp_path: Path):
    save_undeclared(tmp_path, "phi")
    forward = generic_forward(tmp_path, dtype)
    obeyed = forward.attention
    wrong = {"scaling": {"scale": 0.05}, "sliding_window": {"window": 3}}[name]

    def attention(query, keys, values, batch, scoring):
        return obeyed(query, keys, values, batch, scoring._replace(**wrong))

    forward.attention = attention
    with pytest.raises(Refused, match="of the largest from those of Transformers' own attention"):
        check_model(forward, read_causal(tmp_path))


def test_windows_that_do_not_arrive_are_found(tmp_path: Path):
    save_undeclared(tmp_path, "vaultgemma")
    model = read_causal(tmp_path)
    forward = generic_forward(tmp_path)
    model.config.sliding_window = 18
    with pytest.raises(Refused, match="sliding_window 18 does not arrive at the attention"):
        check_model(forward, model)
    save_undeclared(tmp_path, "phi")
    say(tmp_path, sliding_window=17)
    with pytest.raises(Refused, match="sliding_window 17 does not arrive"):
        check_model(generic_forward(tmp_path), read_causal(tmp_path))


OTHERS = {
    "positions": (
        "RobertaForCausalLM",
        {"is_decoder": True, "type_vocab_size": 1},
        "does not count its positions from 0",
    ),
    "two calls a layer": (
        "DiffLlamaForCausalLM",
        {"num_key_value_heads": 2},
        "layer 0 calls its attention where layer 1 is due",
    ),
    "a mask": ("DogeForCausalLM", {}, "attention_mask, which is not obeyed"),
    "latent keys": (
        "MiniCPM3ForCausalLM",
        {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
        "layer 0 has 4 keys of 16 and values of 8 a token",
    ),
}


@pytest.mark.parametrize(("name", "settings", "reason"), OTHERS.values(), ids=OTHERS)
def test_a_class_whose_attention_is_another_is_refused(name, settings, reason, tmp_path: Path):
    import transformers

    model = random_model(getattr(transformers, name), {**SIZES, **settings})
    model.save_pretrained(tmp_path)
    with pytest.raises(Refused, match=reason):
        check_model(generic_forward(tmp_path), read_causal(tmp_path))


def test_the_self_test_leaves_the_model_as_it_was(tmp_path: Path):
    save_undeclared(tmp_path, "phi")
    forward, model = generic_forward(tmp_path), read_causal(tmp_path)
    for _ in range(2):
        check_model(forward, model)
    assert forward.model.config._attn_implementation == "draftwerk"
    assert not torch.is_grad_enabled() or forward.model.training is False
