"""DFlash drafters read from a folder: what is refused, and by which name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from draftwerk.model.checkpoint.dflash_config import is_dflash, read_dflash_config
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, LONG_BLOCKS, LONG_CAPACITY
from draftwerk.model.process.drafters.drafter_table import draft_head_bytes
from tests.support.dflash_models import BLOCK, HEAD, LAYERS, MASK, SECOND, DFlashOracle
from tests.support.tiny_models import VOCAB


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> DFlashOracle:
    return DFlashOracle(tmp_path_factory.mktemp("drafter"))


def changed(made: DFlashOracle, folder: Path, tensors: dict[str, Any], **said: Any) -> Path:
    """Write a drafter with other fields, those of None left out, and other tensors."""
    own = {key: value for key, value in (made.said | said).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(own), encoding="utf-8")
    kept = {**made.tensors, **tensors}
    save_file(
        {name: each for name, each in kept.items() if each is not None},
        folder / "model.safetensors",
    )
    return folder


def section(**said: Any) -> dict[str, Any]:
    own = {"target_layer_ids": [0, 2, 4], "mask_token_id": MASK, **said}
    return {"dflash_config": {key: value for key, value in own.items() if value is not None}}


CONFIGS = [
    ({"vocab_size": 98}, f"vocab_size is 98, and the model's is {VOCAB}"),
    ({"hidden_size": 40}, "hidden_size is 40, and the model's is 32"),
    ({"num_target_layers": 36}, f"num_target_layers is 36, and the model's is {LAYERS}"),
    ({"block_size": 1}, "block_size is 1, and not from 2 to 64"),
    ({"block_size": 4096}, "block_size is 4096, and not from 2 to 64"),
    ({"block_size": None}, "block_size is None"),
    ({"block_size": True}, "block_size is True"),
    (section(mask_token_id=VOCAB), rf"mask_token_id is {VOCAB}, and not from 0 to {VOCAB - 1}"),
    (section(mask_token_id=None), "mask_token_id is None"),
    (section(target_layer_ids=[0, 2, 5]), r"target_layer_ids \[0, 2, 5\] are not ascending"),
    (section(target_layer_ids=[2, 0, 4]), r"\[2, 0, 4\] are not ascending"),
    (section(target_layer_ids=[1, 1]), "are not ascending"),
    (section(target_layer_ids=[]), "are not ascending"),
    (section(target_layer_ids="all"), "'all' are not ascending"),
    (section(attention_sink_bias=True), "dflash_config.attention_sink_bias is not supported"),
    (section(causal=1), "causal is 1, and not true or false"),
    ({"dflash_config": [1]}, "dflash_config is no object"),
    ({"model_type": "gemma3"}, "model_type 'gemma3' is not supported"),
    ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
    ({"draft_vocab_size": 50}, "draft_vocab_size"),
    (section(**SECOND | {"input_embedding_scale": 0}), "input_embedding_scale is 0, and no scale"),
    (section(**SECOND | {"output_multiplier": []}), r"output_multiplier is \[\], and no scale"),
]
TENSORS = [
    ({"fc.weight": None}, "it lacks fc.weight"),
    ({"fc.weight": torch.zeros(32, 64)}, r"fc.weight is \[32, 64\], not \[32, 96\]"),
    ({"fc.weight": torch.zeros(32, 96).to(torch.int8)}, "fc.weight is I8, and not a float"),
    ({"hidden_norm.weight": torch.zeros(31)}, r"hidden_norm.weight is \[31\]"),
    ({"layers.1.mlp.up_proj.weight": None}, "lack model.layers.1.mlp.up_proj.weight"),
    ({"embed_tokens.weight": torch.zeros(VOCAB, 32)}, "embed_tokens.weight: .* its target's"),
    ({"lm_head.weight": torch.zeros(VOCAB, 32)}, "unknown tensors: model.lm_head.weight"),
    ({"d2t": torch.zeros(97)}, "unknown tensors: model.d2t"),
    ({"mask_embedding": torch.zeros(32)}, "unknown tensors: model.mask_embedding"),
]


@pytest.mark.parametrize(("said", "why"), CONFIGS)
def test_a_config_that_does_not_fit_is_refused_before_anything_is_read(made, tmp_path, said, why):
    folder = changed(made, tmp_path, {}, **said)
    with pytest.raises(Refused, match=f"draft head .*{why}"):
        draft_head_bytes(str(folder), made.path.parent, "bf16")
    with pytest.raises(Refused, match=why):
        read_dflash_config(folder, read_config(made.path.parent))


@pytest.mark.parametrize(("tensors", "why"), TENSORS)
def test_tensors_that_do_not_fit_are_refused(made, tmp_path, tensors, why):
    folder = changed(made, tmp_path, tensors)
    with pytest.raises(Refused, match=f"draft head .*{why}"):
        draft_head_bytes(str(folder), made.path.parent, "bf16")


def test_a_file_that_is_cut_is_refused(made, tmp_path):
    path = changed(made, tmp_path, {}) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Refused, match=f"draft head .*{path.name}.*fetch it again"):
        draft_head_bytes(str(tmp_path), made.path.parent, "bf16")


def test_a_config_that_names_no_layers_has_them_at_equal_distances(made, tmp_path):
    folder = changed(made, tmp_path, {}, **section(target_layer_ids=None))
    assert is_dflash(folder)
    found = read_dflash_config(folder, read_config(made.path.parent))
    assert found.target_layers == (1, 3)
    assert found.block_size == BLOCK and found.mask_token == MASK


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, (False, False)),
        ({"layer_types": ["sliding_attention", "full_attention"]}, (True, False)),
        ({"is_causal": True}, (True, True)),
        (section(causal=False) | {"layer_types": ["sliding_attention"] * 2}, (False, False)),
    ],
)
def test_layers_with_a_window_are_causal_unless_the_config_says_so_of_all(
    made, tmp_path, said, wanted
):
    sliding = {"sliding_window": 9, "use_sliding_window": True} if "layer_types" in said else {}
    folder = changed(made, tmp_path, {}, **said, **sliding)
    assert read_dflash_config(folder, read_config(made.path.parent)).causal == wanted


def test_pages_and_weights_are_in_the_plan(made):
    folder = made.path.parent
    stored = (folder / HEAD / "model.safetensors").stat().st_size
    pages = 2 * LONG_CAPACITY * LONG_BLOCKS * BLOCK_SIZE * 2 * 2 * 8 * 2
    found = draft_head_bytes(str(folder / HEAD), folder, "bf16")
    assert pages + stored < found < 2 * pages + 4 * stored
