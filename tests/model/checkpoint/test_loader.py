"""What is not served is refused, naming the cause."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from draftwerk.model.checkpoint.families.windows import FULL, SLIDING
from draftwerk.model.checkpoint.files.shards import INDEX
from draftwerk.model.checkpoint.hf_config import QUANTISATION_FILES, read_config
from draftwerk.model.checkpoint.hub import cache_directory, locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.changed_files import put, say
from tests.support.runners import FP32
from tests.support.tiny_models import save_tiny

NULL = object()
"""JSON's own."""


def save_config(directory: Path, family: str = "llama", **changes) -> None:
    """Save a tiny model with some fields of its config.json changed; None removes one."""
    save_tiny(directory, family)
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    path.write_text(json.dumps({key: None if kept[key] is NULL else kept[key] for key in kept}))


QWEN = {"use_sliding_window": True, "sliding_window": 64}
REFUSALS = {
    "architecture": ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported"),
    "no architecture": ({"architectures": []}, "no architecture is not supported"),
    "field": ({"rms_norm_eps": NULL}, "config.json lacks rms_norm_eps"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    "quantised": ({"quantization_config": {"quant_method": "gptq"}}, "bits None of gptq"),
    "unknown rope": (
        {"rope_parameters": {"rope_type": "spiral", "factor": 2.0}},
        "rope_scaling 'spiral' is not supported",
    ),
    "llama3 rope": (
        {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}},
        "'llama3' lacks low_freq_factor, high_freq_factor, original_max",
    ),
    "partial rope": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor",
    ),
    "activation of another kind": ({"hidden_act": ["silu"]}, "hidden_act"),
    "quantised, older": ({"compression_config": {"bits": 4}}, "compression_config 'unnamed'"),
    "stored as 8 bits": ({"torch_dtype": "float8_e4m3fn"}, "torch_dtype 'float8_e4m3fn'"),
    "two types": (
        {"dtype": "float32", "torch_dtype": "bfloat16"},
        "dtype 'float32' contradicts torch_dtype 'bfloat16'",
    ),
    "two families": ({"model_type": "qwen2"}, "model_type 'qwen2' contradicts architectures"),
    "no count": ({"num_hidden_layers": "two"}, "num_hidden_layers 'two' is not a count"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers 0 is not a count"),
    "too many layers": ({"num_hidden_layers": 2**31}, "num_hidden_layers 2147483648 is above"),
    "no number": ({"rms_norm_eps": "small"}, "rms_norm_eps 'small'"),
    "heads": ({"num_key_value_heads": 3}, "num_attention_heads 4 is no multiple of num_key"),
    "more KV heads": ({"num_key_value_heads": 8}, "num_attention_heads 4 is no multiple"),
    "width": (
        {"head_dim": None, "num_attention_heads": 5, "num_key_value_heads": 5},
        "hidden_size 32 is no multiple of num_attention_heads 5",
    ),
    "odd heads": ({"head_dim": 7}, "head_dim 7 is odd"),
    "vocabulary": ({"vocab_size": 98}, r"embed_tokens.weight has shape \(97, 32\), .* \(98, 32\)"),
    "end token": ({"eos_token_id": 97}, "eos_token_id 97 is outside vocab_size 97"),
    "end tokens": ({"eos_token_id": [2, "x"]}, "eos_token_id 'x' is outside vocab_size 97"),
    "tied": ({"tie_word_embeddings": True, "hidden_size": 64}, "has shape"),
    "biases": ({"attention_bias": True}, r"lack .*q_proj.bias \(attention_bias is true\)"),
    "FFN biases": ({"mlp_bias": True}, r"lack .*gate_proj.bias \(mlp_bias is true\)"),
    "layer kinds": (
        {"layer_types": ["full_attention"]},
        "layer_types contradicts num_hidden_layers 2",
    ),
    "a layer kind": (
        {"layer_types": ["full_attention", "chunked_attention"]},
        "layer_types 'chunked_attention' is not supported",
    ),
    "a window of none": (
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": NULL},
        "layer_types 'sliding_attention' contradicts sliding_window null",
    ),
    "two rules": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "rope_parameters .* contradicts rope_scaling",
    ),
    "two thetas": (
        {"rope_theta": 5e5},
        "rope_theta 500000.0 contradicts rope_parameters.rope_theta",
    ),
    "two names of a rule": (
        {"rope_parameters": {"rope_type": "linear", "type": "yarn", "factor": 2.0}},
        "rope_type 'linear' contradicts type 'yarn'",
    ),
    "two contexts": (
        {
            "rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 64},
            "original_max_position_embeddings": 128,
        },
        "original_max_position_embeddings 128 is not supported",
    ),
    "rope by layer": (
        {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
        "only one rule for all layers",
    ),
    "no rope factor": (
        {"rope_parameters": {"rope_type": "linear", "factor": -1}},
        "'linear' has factor -1",
    ),
    "llama3 rope reversed": (
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 4.0,
                "high_freq_factor": 1.0,
                "original_max_position_embeddings": 64,
            }
        },
        "low_freq_factor",
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
    with pytest.raises(Refused, match=reason):
        read_info(locate(str(tmp_path)))


@pytest.mark.parametrize("name", QUANTISATION_FILES)
def test_a_file_with_quantised_weights_is_refused(name: str, tmp_path: Path):
    save_tiny(tmp_path, "llama")
    (tmp_path / name).write_text("{}")
    with pytest.raises(Refused, match=name):
        load(str(tmp_path), FP32)


@pytest.mark.parametrize(
    ("family", "name", "reason"),
    [
        ("llama", "self_attn.q_proj.bias", "attention_bias is false"),
        ("llama", "mlp.down_proj.bias", "mlp_bias is false"),
        ("mistral", "self_attn.v_proj.bias", "attention_bias is false"),
        ("qwen2", "self_attn.o_proj.bias", "attention_bias is false"),
    ],
)
def test_a_bias_that_the_config_denies_is_refused(family, name, reason, tmp_path: Path):
    save_tiny(tmp_path, family)
    put(tmp_path, {f"model.layers.1.{name}": torch.ones(32)})
    with pytest.raises(Refused, match=rf"unknown tensors: .*{name} \({reason}\)"):
        load(str(tmp_path), FP32)


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_beside_tied_embeddings_counts_as_in_transformers(equal: bool, tmp_path: Path):
    model = save_tiny(tmp_path, "llama")
    if equal:
        put(tmp_path, {"lm_head.weight": model.get_input_embeddings().weight.clone()})
    say(tmp_path, tie_word_embeddings=True)
    loaded = load(str(tmp_path), FP32)
    reference = type(model).from_pretrained(tmp_path)
    assert torch.equal(loaded.weights.lm_head, reference.get_output_embeddings().weight)
    assert (loaded.weights.lm_head is loaded.weights.embedding) == equal


WINDOWS = {
    "mistral": ("mistral", {"sliding_window": 100}, [100, 100]),
    "llama, wide": ("llama", {"sliding_window": 512}, []),
    "llama, off": ("llama", {"use_sliding_window": False, "sliding_window": 64}, []),
    "llama, none": ("llama", {"layer_types": [FULL] * 2, "sliding_window": 64}, []),
    "mistral, wide": ("mistral", {"sliding_window": 512}, []),
    "mistral, none": ("mistral", {"sliding_window": NULL}, []),
    "qwen2, off": ("qwen2", {"use_sliding_window": False, "sliding_window": 64}, []),
    "qwen2, all": ("qwen2", QWEN | {"max_window_layers": 0}, [64, 64]),
    "qwen2, one": ("qwen2", QWEN | {"max_window_layers": 1}, [0, 64]),
    "qwen2, none": ("qwen2", QWEN | {"max_window_layers": 2}, []),
    "qwen3": ("qwen3", QWEN | {"layer_types": [FULL, SLIDING]}, [0, 64]),
    "smollm3": ("smollm3", {"sliding_window": 64, "use_sliding_window": True}, [0, 64, 0]),
    "gemma2": ("gemma2", {"sliding_window": 64}, [64, 0, 64, 0]),
    "gemma3": ("gemma3_text", {"sliding_window": 64, "sliding_window_pattern": 3}, [64, 64, 0, 64]),
    "olmo3": ("olmo3", {"sliding_window": 64}, [64, 64, 64, 0]),
    "cohere2": ("cohere2", {"sliding_window": 64, "sliding_window_pattern": NULL}, [64, 64, 64, 0]),
}


@pytest.mark.parametrize(("family", "changes", "windows"), WINDOWS.values(), ids=WINDOWS)
def test_windows_are_those_of_the_config(family, changes, windows, tmp_path: Path):
    save_config(tmp_path, family, **({"layer_types": None} | changes))
    found = [kind.window for kind in read_config(tmp_path).layers]
    assert found == windows or not any(found + windows)


def test_a_window_that_servers_disagree_about_is_refused(tmp_path: Path):
    save_config(tmp_path, "llama", layer_types=None, sliding_window=64)
    with pytest.raises(Refused, match="sliding_window 64 is ambiguous"):
        read_config(tmp_path)


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


def test_what_is_neither_path_nor_hub_name_is_refused(tmp_path: Path):
    (tmp_path / "weights.bin").touch()
    for source in ("no-such-model", "./no/such", str(tmp_path / "weights.bin"), "a/b/c"):
        with pytest.raises(Refused, match="GGUF"):
            locate(source)


def test_a_hub_name_without_a_network_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Refused, match="nobody/nothing: HF_HUB_OFFLINE is set, so no hub is asked"):
        locate("nobody/nothing")


def test_the_tests_leave_the_users_cache_alone():
    assert cache_directory().parent.name.startswith("draftwerk-tests-")


def sharded(directory: Path) -> dict:
    """Save a tiny model in several files; return its index."""
    save_tiny(directory, "llama").save_pretrained(directory, max_shard_size="20KB")
    (directory / "model.safetensors").unlink()
    return json.loads((directory / INDEX).read_text())


def test_a_missing_shard_is_named(tmp_path: Path):
    shard = sorted(set(sharded(tmp_path)["weight_map"].values()))[1]
    (tmp_path / shard).unlink()
    with pytest.raises(Refused, match=f"{shard}: it is missing"):
        load(str(tmp_path), FP32)


def test_a_shard_and_an_index_that_disagree_are_refused(tmp_path: Path):
    index = sharded(tmp_path)
    name, other = "model.norm.weight", "model.embed_tokens.weight"
    moved = index["weight_map"] | {name: index["weight_map"][other]}
    assert moved != index["weight_map"]
    for weight_map, reason in (
        (moved, f"{moved[name]}: it lacks {name}"),
        ({k: v for k, v in index["weight_map"].items() if k != name}, f"holds {name}"),
        ({name: "../elsewhere.safetensors"}, "is not the name of a file beside it"),
        ([name], "no weight_map"),
    ):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(Refused, match=reason):
            load(str(tmp_path), FP32)


def test_two_checkpoints_in_one_folder_are_refused(tmp_path: Path):
    sharded(tmp_path)
    save_tiny(tmp_path, "llama", seed=1)
    with pytest.raises(Refused, match="are two checkpoints; remove one"):
        load(str(tmp_path), FP32)


def header(size: int, **entry) -> bytes:
    raw = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}).encode()
    return len(raw).to_bytes(8, "little") + raw + bytes(size)


BROKEN = {
    "empty": b"",
    "text": b"this is not it, but text that goes on for a while",
    "a web page": b"<!DOCTYPE html>" * 100,
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "a header cut short": header(8)[:40],
    "no JSON": (16).to_bytes(8, "little") + b"x" * 99,
    "no UTF-8": (16).to_bytes(8, "little") + b'{"\xff": {}      ' + bytes(9),
    "a list": (16).to_bytes(8, "little") + b"[1,            ]",
    "cut short": header(7),
    "longer": header(9),
    "another size": header(8, shape=[3]),
    "a negative size": header(8, shape=[-1, -2]),
    "backwards": header(8, data_offsets=[8, 0]),
    "no entry": header(8, dtype=3),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_safetensors_or_broken_is_named(content: bytes, tmp_path: Path):
    save_tiny(tmp_path, "llama")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(Refused, match=f"^{tmp_path}/model.safetensors: "):
        load(str(tmp_path), FP32)


@pytest.mark.parametrize(
    ("name", "dtype", "said"),
    [
        ("model.layers.0.mlp.down_proj.weight", torch.int8, "I8"),
        ("model.norm.weight", torch.float8_e4m3fn, "F8_E4M3"),
        ("model.norm.weight", torch.int32, "I32"),
        ("model.norm.weight", torch.uint8, "U8"),
    ],
)
def test_a_type_that_is_some_quantisation_is_refused(name, dtype, said, tmp_path: Path):
    save_tiny(tmp_path, "llama")
    tensors = load_file(tmp_path / "model.safetensors")
    put(tmp_path, {name: tensors[name].to(dtype)})
    with pytest.raises(Refused, match=f"{name} is {said}: quantised"):
        load(str(tmp_path), FP32)
