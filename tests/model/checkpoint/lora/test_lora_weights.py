"""An adapter's matrices are in the order of the rows that they are added to."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.lora.lora_card import read_lora
from draftwerk.model.checkpoint.lora.lora_weights import LoraMatrices, load_lora
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.changed_files import put
from tests.support.tiny_adapters import save_adapter
from tests.support.tiny_models import save_tiny


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_they_are_read_as_floats(tmp_path: Path, dtype: torch.dtype) -> None:
    save_tiny(tmp_path / "base", "llama")
    config = read_config(tmp_path / "base")
    folder = save_adapter(tmp_path / "a", config, dtype=dtype)
    found = load_lora(read_lora(folder, config, tmp_path), config)
    assert [one.part for one in found[:7]] == ["down", "gate_up", "gate_up", "output", *["qkv"] * 3]
    assert all(one.a.dtype == one.b.dtype == torch.float32 for one in found)
    assert [one.first for one in found[4:7]] == [0, 32, 48]
    plain = save_adapter(tmp_path / "b", config)
    exact = load_lora(read_lora(plain, config, tmp_path), config)
    assert torch.equal(found[0].a, exact[0].a.to(dtype).float())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused_by_name(tmp_path: Path, value: float) -> None:
    save_tiny(tmp_path / "base", "llama")
    config = read_config(tmp_path / "base")
    folder = save_adapter(tmp_path / "a", config)
    file = "adapter_model.safetensors"
    name, tensor = next(iter(load_file(folder / file).items()))
    put(folder, {name: torch.full_like(tensor, value)}, file)
    with pytest.raises(Refused, match=f"{name} has values that are not finite"):
        load_lora(read_lora(folder, config, tmp_path), config)


@pytest.mark.parametrize("family", ["llama", "cohere", "glm4"])
def test_rows_stand_as_the_model_has_them(tmp_path: Path, family: str) -> None:
    """With B a part of the stored matrix and A the unit matrix the product is the loaded one."""
    model = save_tiny(tmp_path / "base", family)
    config = read_config(tmp_path / "base")
    folder = save_adapter(tmp_path / "a", config, rank=config.hidden_size)
    card = read_lora(folder, config, tmp_path)
    stored = model.state_dict()
    changes = dict[str, torch.Tensor]()
    for pair in card.pairs:
        if pair.module.part == "qkv":
            changes[pair.b.name] = stored[f"{pair.name}.weight"].contiguous()
            changes[pair.a.name] = torch.eye(config.hidden_size)
    put(folder, changes, "adapter_model.safetensors")
    found = load_lora(read_lora(folder, config, tmp_path), config)
    own: list[LoraMatrices] = [one for one in found if one.layer == 1 and one.part == "qkv"]
    loaded = load(str(tmp_path / "base"), torch.float32).weights.layers[1]
    assert torch.equal(torch.cat([one.b @ one.a for one in own]), loaded.qkv)
