"""Ranks and scales are PEFT's, and what changes more than those is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.checkpoint.lora.lora_config import read_lora_config
from draftwerk.model.checkpoint.unsupported import Refused


def written(folder: Path, **fields: Any) -> Path:
    found = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, **fields}
    (folder / "adapter_config.json").write_text(json.dumps(found))
    return folder


def test_the_scale_is_alpha_over_the_rank_or_its_root(tmp_path: Path) -> None:
    assert read_lora_config(written(tmp_path)).scale("model.layers.0.mlp.up_proj") == 2.0
    rslora = read_lora_config(written(tmp_path, r=4, use_rslora=True))
    assert rslora.scale("model.layers.0.mlp.up_proj") == 8.0


def test_patterns_name_the_ends_of_modules_and_the_first_counts(tmp_path: Path) -> None:
    config = read_lora_config(
        written(
            tmp_path,
            rank_pattern={r"layers\.1\.self_attn\.q_proj": 2, "q_proj": 4, "proj": 32},
            alpha_pattern={"model.layers.0.self_attn.q_proj": 1},
        )
    )
    first, second = (f"model.layers.{layer}.self_attn.q_proj" for layer in range(2))
    assert (config.rank(first), config.rank(second)) == (4, 2)
    assert config.rank("model.layers.0.self_attn.k_proj") == 8
    assert (config.scale(first), config.scale(second)) == (0.25, 8.0)


QUERY, DOWN = "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("fields", "adapted"),
    [
        ({}, {QUERY, DOWN}),
        ({"target_modules": "all-linear"}, {QUERY, DOWN}),
        ({"target_modules": ["q_proj"]}, {QUERY}),
        ({"target_modules": ["proj"]}, set()),
        ({"target_modules": ".*_proj", "exclude_modules": ["q_proj"]}, {DOWN}),
        ({"target_modules": ["q_proj"], "layers_to_transform": 1}, {QUERY}),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0]}, set()),
        ({"target_modules": [DOWN], "layers_to_transform": [0]}, {DOWN}),
        (
            {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "h"},
            set(),
        ),
    ],
)
def test_modules_are_those_that_the_config_names(
    tmp_path: Path, fields: dict[str, Any], adapted: set[str]
) -> None:
    config = read_lora_config(written(tmp_path, **fields))
    assert {module for module in (QUERY, DOWN) if config.adapts(module)} == adapted


def test_fields_without_effect_are_taken(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        **{"loftq_config": {}, "modules_to_save": None, "use_dora": False, "lora_dropout": 0.05},
        **{"target_modules": ["q_proj"], "init_lora_weights": "gaussian", "task_type": None},
    )
    assert read_lora_config(folder).r == 8


@pytest.mark.parametrize(
    "fields",
    [
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"trainable_token_indices": [3]},
        {"layer_replication": [[0, 4], [2, 5]]},
        {"fan_in_fan_out": True},
        {"lora_bias": True},
        {"bias": "all"},
        {"peft_type": "IA3"},
        {"init_lora_weights": "pissa_niter_4"},
        {"init_lora_weights": "lora_ga"},
        {"init_lora_weights": "mica"},
        {"twist": 3},
        {"r": 0},
        {"r": "eight"},
        {"rank_pattern": {"q_proj": 2000}},
        {"alpha_pattern": {"(q": 1}},
        {"kasa_config": {}},
    ],
)
def test_what_is_not_served_is_refused_with_file_and_field(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    with pytest.raises(Refused) as refusal:
        read_lora_config(written(tmp_path, **fields))
    name, value = next(iter(fields.items()))
    words = "rank" if name == "rank_pattern" else "pattern" if name == "alpha_pattern" else name
    assert str(tmp_path / "adapter_config.json") in str(refusal.value)
    assert (words if value or name != "r" else "rank") in str(refusal.value)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no adapter_config\.json"):
        read_lora_config(tmp_path)
