"""Assistants in folders: what is read of them, and what is refused by name."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from draftwerk.model.checkpoint.assistant import read_assistant
from draftwerk.model.checkpoint.assistant_config import BEFORE, ORDER, is_assistant
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.assistant_models import HEAD, AssistantOracle
from tests.support.changed_files import WEIGHTS, copied_head, put, say
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def oracle(tmp_path_factory) -> AssistantOracle:
    return AssistantOracle(tmp_path_factory.mktemp("gemma4"), ordered=True)


@pytest.fixture(scope="module")
def target(oracle) -> ModelConfig:
    return read_config(oracle.path.parent)


@pytest.fixture
def folder(oracle, tmp_path) -> Path:
    """Return an assistant's folder that may be changed."""
    return copied_head(oracle.path.parent / HEAD, tmp_path)


def test_each_layer_reads_the_last_of_its_kind_that_has_keys(oracle, target, folder):
    found = read_assistant(folder, target)
    assert is_assistant(folder) and not is_assistant(oracle.path.parent)
    assert [kind.kv_from for kind in found.config.layers] == [2, 2, 1]
    assert found.clusters is not None and found.clusters.used == 3
    assert torch.equal(found.clusters.tokens.flatten(), oracle.clusters.token_ordering)
    say(folder, "", use_ordered_embeddings=False)
    names = [name for name in load_file(folder / WEIGHTS) if name.startswith("masked")]
    put(folder, dict.fromkeys(names))
    assert read_assistant(folder, target).clusters is None


def test_a_target_without_shared_keys_has_its_last_layers_read(folder, tmp_path):
    changes = {"vocab_size": 96, "num_global_key_value_heads": 2}
    save_tiny(tmp_path / "unified", "gemma4_unified_text", **changes)
    found = read_assistant(folder, read_config(tmp_path / "unified"))
    assert [kind.kv_from for kind in found.config.layers] == [2, 2, 3]


def test_it_is_not_served_itself(folder):
    with pytest.raises(Refused, match="Gemma4AssistantForCausalLM drafts for another model"):
        read_config(folder)


@pytest.mark.parametrize(
    ("part", "changes", "named"),
    [
        ("", {"backbone_hidden_size": 64}, "backbone_hidden_size is 64, and the model's is 32"),
        ("", {"backbone_hidden_size": None}, "backbone_hidden_size None is not a count"),
        ("", {"num_centroids": 7}, "num_centroids 7 do not divide the vocabulary"),
        ("", {"text_config": None}, "lacks text_config"),
        ("text_config", {"vocab_size": 120}, "vocab_size is 120, and the model's is 96"),
        (
            "text_config",
            {"num_key_value_heads": 4, "per_layer_config": {}},
            "layer 0 does not read",
        ),
        ("text_config", {"hidden_size_per_layer_input": 8}, "hidden_size_per_layer_input"),
        ("text_config", {"hidden_activation": "swish"}, "hidden_activation 'swish'"),
    ],
)
def test_what_does_not_fit_the_target_is_refused(target, folder, part, changes, named):
    say(folder, part, **changes)
    with pytest.raises(Refused, match=named):
        read_assistant(folder, target)


@pytest.mark.parametrize(
    ("name", "tensor", "named"),
    [
        (BEFORE, None, f"it lacks {BEFORE}"),
        (BEFORE, torch.ones(3, 4), rf"{BEFORE} is \[3, 4\], not \[32, 64\]"),
        (ORDER, torch.zeros(96, dtype=torch.int64), "does not name each token once"),
        ("model.layers.1.self_attn.q_proj.weight", None, "lack model.layers.1.self_attn.q_proj"),
        ("model.more.weight", torch.ones(2), "unknown tensors: model.more.weight"),
    ],
)
def test_tensors_are_all_there_and_all_read(target, folder, name, tensor, named):
    put(folder, {name: tensor})
    with pytest.raises(Refused, match=named):
        read_assistant(folder, target)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_it_drafts_for_no_other_family(folder, tmp_path, family):
    save_tiny(tmp_path / "other", family)
    with pytest.raises(Refused, match="an assistant does not draft for"):
        read_assistant(folder, read_config(tmp_path / "other"))
