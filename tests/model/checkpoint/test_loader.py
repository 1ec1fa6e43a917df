"""What is not served is refused, naming the cause."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import cache_directory, locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.runners import FP32
from tests.support.tiny_models import save_tiny


def save_config(directory: Path, family: str = "llama", **changes) -> None:
    """Save a tiny model with some fields of its config.json changed; None removes one."""
    save_tiny(directory, family)
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


REFUSALS = {
    "architecture": ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported"),
    "no architecture": ({"architectures": []}, "no architecture is not supported"),
    "field": ({"rms_norm_eps": None}, "config.json lacks rms_norm_eps"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    "quantised": ({"quantization_config": {"quant_method": "gptq"}}, "'gptq'"),
    "dynamic rope": (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
        "rope_scaling 'dynamic' is not supported",
    ),
    "llama3 rope": (
        {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}},
        "'llama3' lacks low_freq_factor, high_freq_factor, original_max",
    ),
    "partial rope": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor",
    ),
    "shape": ({"intermediate_size": 64}, "has shape"),
    "layer missing": ({"num_hidden_layers": 3}, "the weights lack model.layers.2"),
    "layer unknown": ({"num_hidden_layers": 1}, "9 unknown tensors"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_a_model_that_would_not_be_obeyed_is_refused(changes, reason, tmp_path: Path):
    save_config(tmp_path, **changes)
    with pytest.raises(Refused, match=reason):
        load(str(tmp_path), FP32)


def test_the_card_refuses_what_the_loader_would(tmp_path: Path):
    save_config(tmp_path, architectures=["GPT2LMHeadModel"], num_attention_heads=None)
    with pytest.raises(Refused, match="GPT2LMHeadModel is not supported"):
        read_info(locate(str(tmp_path)))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("mistral", {"sliding_window": 100}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64}),
    ],
)
def test_a_sliding_window_in_effect_is_refused(family, changes, tmp_path: Path):
    save_config(tmp_path, family, **({"layer_types": None} | changes))
    with pytest.raises(Refused, match="sliding_window"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("mistral", {"sliding_window": 512}),
        ("llama", {"sliding_window": 64}),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 64}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}),
    ],
)
def test_a_sliding_window_without_effect_is_served(family, changes, tmp_path: Path):
    save_config(tmp_path, family, **({"layer_types": None} | changes))
    assert read_config(tmp_path).layer_count == 2


def test_the_old_names_of_rope_fields_mean_the_same(tmp_path: Path):
    save_config(tmp_path, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 5e4})
    new = read_config(tmp_path)
    scaling = {"type": "linear", "factor": 4.0}
    save_config(tmp_path, rope_parameters=None, rope_theta=5e4, rope_scaling=scaling)
    assert read_config(tmp_path) == new


def test_a_pickle_is_never_opened(tmp_path: Path):
    save_tiny(tmp_path, "llama")
    tensors = load_file(tmp_path / "model.safetensors")
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(Refused, match="safetensors and GGUF only"):
        load(str(tmp_path), FP32)


def test_quantised_tensors_are_refused(tmp_path: Path):
    save_tiny(tmp_path, "llama")
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = tensors[name].to(torch.int8)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(Refused, match=r"down_proj.weight is torch.int8"):
        load(str(tmp_path), FP32)


def test_what_is_neither_path_nor_hub_name_is_refused(tmp_path: Path):
    (tmp_path / "weights.bin").touch()
    for source in ("no-such-model", "./no/such", str(tmp_path / "weights.bin"), "a/b/c"):
        with pytest.raises(Refused, match="GGUF"):
            locate(source)


def test_a_hub_name_without_a_network_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Refused, match="nobody/nothing: not a local path, and the hub says"):
        locate("nobody/nothing")


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "draftwerk"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "draftwerk"


def test_end_tokens_come_from_the_generation_config_first(tmp_path: Path):
    save_config(tmp_path, eos_token_id=7)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    assert read_config(tmp_path).eos_token_ids == (7,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert read_config(tmp_path).eos_token_ids == (1, 2)
