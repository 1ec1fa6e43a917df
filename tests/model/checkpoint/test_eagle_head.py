"""EAGLE-3 heads in folders: what is read of them, and what is refused by name."""

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.eagle_config import LAYER_IDS, plan_eagle
from draftwerk.model.checkpoint.eagle_head import read_eagle
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import build
from tests.support.changed_files import WEIGHTS, copied_head, put, say
from tests.support.eagle_models import GUESSED, HEAD, LAYERS, EagleOracle


@pytest.fixture(scope="module")
def oracle(tmp_path_factory) -> EagleOracle:
    return EagleOracle(tmp_path_factory.mktemp("eagle"))


@pytest.fixture(scope="module")
def target(oracle) -> ModelConfig:
    return read_config(oracle.path.parent)


@pytest.fixture
def folder(oracle, tmp_path) -> Path:
    """Return a head's folder that may be changed."""
    return copied_head(oracle.path.parent / HEAD, tmp_path)


def test_tokens_and_layers_are_the_targets(oracle, target, folder):
    head = read_eagle(folder, target)
    assert head.vocabulary.tolist() == oracle.vocabulary.tolist()
    assert len(head.vocabulary) == head.config.vocab_size == GUESSED
    assert head.target_layers == (2, LAYERS // 2, LAYERS - 3)
    assert head.embedding is None and not head.norms_residual
    say(folder, **{LAYER_IDS: [1, 3, 6]})
    assert read_eagle(folder, target).target_layers == (1, 3, 6)
    say(folder, eagle_config={LAYER_IDS: [0, 2, 5]})
    assert read_eagle(folder, target).target_layers == (1, 3, 6)


def test_other_names_of_the_layer_and_a_nested_config_are_read(target, folder):
    plain = read_eagle(folder, target)
    stored = load_file(folder / WEIGHTS)
    renamed = {name.replace("midlayer.", "layers.0."): each for name, each in stored.items()}
    embedding = torch.ones(target.vocab_size, target.hidden_size)
    save_file({**renamed, "embed_tokens.weight": embedding}, folder / WEIGHTS)
    hf = json.loads((folder / "config.json").read_bytes())
    own = {key: hf.pop(key) for key in ("hidden_size", "intermediate_size", "num_attention_heads")}
    say(folder, **dict.fromkeys(own), transformer_layer_config={**hf, **own})
    nested = read_eagle(folder, target)
    assert nested.config == plain.config
    assert nested.embedding is not None and torch.equal(nested.embedding, embedding)
    assert all(torch.equal(nested.matrices[key], each) for key, each in plain.matrices.items())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fc.weight": torch.ones(32, 64)}, r"fc\.weight is \[32, 64\], not \[32, 96\]"),
        ({"lm_head.weight": torch.ones(97, 32)}, r"lm_head\.weight is \[97, 32\], not \[71, 32\]"),
        ({"midlayer.self_attn.k_proj.weight": None}, r"lacks self_attn\.k_proj\.weight"),
        ({"midlayer.self_attn.q_norm.weight": torch.ones(8)}, r"self_attn\.q_norm\.weight is not"),
        ({"d2t": torch.full((GUESSED,), 96)}, "d2t names tokens that the model does not have"),
        ({"d2t": None}, "lacks d2t"),
        ({"d2t": torch.zeros(GUESSED)}, "d2t is F32, and not an integer"),
        ({"norm.weight": torch.ones(32).to(torch.int8)}, r"norm\.weight is I8, and not a float"),
        ({"fc.weight": torch.ones(32, 96) > 0}, r"fc\.weight is BOOL, and not a float"),
        (
            {"fc.weight": torch.ones(32, 96).to(torch.float8_e4m3fn)},
            r"fc\.weight is F8_E4M3, and not a float",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_tensor(target, folder, changes, named):
    put(folder, changes)
    with pytest.raises(Refused, match=named):
        read_eagle(folder, target)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fc_norm": True}, "fc_norm is not supported"),
        ({"num_hidden_layers": 2}, "2 layers, where one is supported"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({LAYER_IDS: [1, 2, LAYERS]}, "are not three of the model's 7 layers"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"frobnicate": 3}, "frobnicate"),
        ({"draft_vocab_size": "71"}, "draft_vocab_size '71' is not a count"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(target, folder, changes, named):
    say(folder, **changes)
    with pytest.raises(Refused, match=named):
        read_eagle(folder, target)


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_head_of_another_vocabulary_is_refused_by_name(target, folder, is_nested):
    hf = json.loads((folder / "config.json").read_bytes())
    own = {**hf, "vocab_size": 98}
    say(folder, **({"transformer_layer_config": own} if is_nested else own))
    with pytest.raises(Refused, match="vocab_size is 98, and the model's is 97"):
        plan_eagle(folder, folder, target)


def test_a_head_of_a_wider_target_needs_an_embedding(target, folder):
    wider = replace(target, hidden_size=64)
    put(folder, {"fc.weight": torch.ones(32, 192)})
    with pytest.raises(Refused, match=r"lacks embed_tokens\.weight"):
        read_eagle(folder, wider)


@pytest.mark.parametrize("attention", ["auto", "padded"])
def test_a_target_is_built_with_the_head_of_a_folder_or_refused(oracle, folder, attention):
    source = str(oracle.path.parent)
    options = ModelOptions(source=source, draft_head=str(folder), attention=attention)
    made = build(options).parts.draft_head
    assert made is not None and made.windows is not None
    assert made.name == "an EAGLE-3 layer that guesses 71 tokens"
    put(folder, {"norm.weight": None})
    with pytest.raises(Refused, match=r"lacks norm\.weight"):
        build(options)


def test_a_folder_in_the_way_of_a_word_is_no_head(oracle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "auto").mkdir()
    options = ModelOptions(source=str(oracle.path.parent), draft_head="auto", attention="padded")
    assert build(options).parts.draft_head is None
