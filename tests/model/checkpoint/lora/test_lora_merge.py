"""Merged adapters: the loaded model is the one with W + scale * B A in the place of every W."""

from pathlib import Path

import pytest
import torch

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.lora.lora_card import read_lora
from draftwerk.model.checkpoint.lora.lora_weights import load_lora
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.quantised_checkpoints import save_quantised
from tests.support.tiny_adapters import save_adapter
from tests.support.tiny_models import save_tiny


@pytest.mark.parametrize("family", ["llama", "cohere", "phi3"])
def test_what_is_loaded_is_the_sum(tmp_path: Path, family: str) -> None:
    save_tiny(tmp_path / "base", family)
    source = str(tmp_path / "base")
    plain = load(source, torch.float32)
    modules = ("q_proj", "k_proj", "qkv_proj", "o_proj", "gate_up_proj", "up_proj", "down_proj")
    folders = [
        save_adapter(tmp_path / name, plain.config, seed, modules)
        for seed, name in enumerate(("one", "other"))
    ]
    cards = [read_lora(folder, plain.config, tmp_path) for folder in folders]
    merged = load(source, torch.float32, merged=cards)
    for card in cards:
        for one in load_lora(card, plain.config):
            matrix = getattr(plain.weights.layers[one.layer], one.part)
            matrix[one.first : one.first + len(one.b)] += one.scale * (one.b @ one.a)
    for own, expected in zip(merged.weights.layers, plain.weights.layers, strict=True):
        for part in ("qkv", "output", "gate_up", "down"):
            assert torch.allclose(getattr(own, part), getattr(expected, part), atol=1e-5)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    save_quantised(tmp_path / "base", "gptq")
    config = read_config(tmp_path / "base")
    adapter = read_lora(save_adapter(tmp_path / "a", config), config, tmp_path)
    with pytest.raises(Refused, match="cannot be merged into"):
        load(str(tmp_path / "base"), None, merged=[adapter])
