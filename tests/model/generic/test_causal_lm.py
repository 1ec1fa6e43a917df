"""What backend transformers does not serve is refused in a sentence that names it."""

from pathlib import Path
from typing import Any

import pytest
import transformers

from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import read_causal, read_causal_info
from tests.support.changed_files import say
from tests.support.tiny_models import save_tiny
from tests.support.undeclared_models import save_undeclared

CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a recurrent state": ("MambaConfig", {"hidden_size": 32}, "a recurrent state"),
    "its own attention": ("BloomConfig", {}, "not called through Transformers' interface"),
    "an encoder": ("BartConfig", {}, "an encoder before the decoder"),
    "chunks": ("Llama4TextConfig", {}, "a layer of type chunked_attention"),
    "convolutions": ("Lfm3Config", {}, "a layer of type conv"),
    "dynamic rotation": (
        "PhiConfig",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "rope_type dynamic",
    ),
    "LongRoPE": (
        "PhimoeConfig",
        {
            "rope_parameters": {
                **{"rope_type": "longrope", "rope_theta": 1e4},
                **{"short_factor": [1.0] * 16, "long_factor": [2.0] * 16},
                **{"original_max_position_embeddings": 64},
                **{"short_mscale": 1.0, "long_mscale": 1.0},
            }
        },
        "rope_type longrope",
    ),
    "no text": ("ViTConfig", {}, "model_type 'vit' has no causal model in Transformers"),
}


@pytest.mark.parametrize(("name", "fields", "reason"), CONFIGS.values(), ids=CONFIGS)
def test_a_class_that_does_not_run_on_pages_is_refused(name, fields, reason, tmp_path: Path):
    getattr(transformers, name)(**fields).save_pretrained(tmp_path)
    with pytest.raises(Refused, match=reason) as refused:
        read_causal(tmp_path)
    assert "\n" not in str(refused.value)


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "another class": (
        {"architectures": ["PhiForSequenceClassification"]},
        "PhiForSequenceClassification is not supported: of 'phi' only PhiForCausalLM is",
    ),
    "code of its own": (
        {"model_type": "new", "auto_map": {"AutoConfig": "new.NewConfig"}},
        "Transformers does not read it: .*custom code",
    ),
    "no family": ({"model_type": "new"}, "Transformers does not read it: .*`new`"),
    "quantised weights": (
        {"quantization_config": {"quant_method": "awq"}},
        "serves whole weights, and these are quantised",
    ),
    "no count": ({"max_position_embeddings": 0}, "max_position_embeddings 0 is not a count"),
    "a text's end": ({"eos_token_id": 97}, "eos_token_id 97 is outside vocab_size 97"),
}


@pytest.mark.parametrize(("fields", "reason"), FIELDS.values(), ids=FIELDS)
def test_a_config_that_cannot_be_obeyed_is_refused(fields, reason, tmp_path: Path):
    save_undeclared(tmp_path, "phi")
    say(tmp_path, **fields)
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(Refused, match=reason):
        read_causal(tmp_path)


def test_a_directory_without_a_config_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match=r"no config\.json"):
        read_causal(tmp_path)


def test_a_card_has_what_pages_are_made_by(tmp_path: Path):
    save_undeclared(tmp_path, "phi")
    card = read_causal_info(Location("tiny", tmp_path))
    assert (card.name, card.family, card.vocab_size, card.context_max) == ("tiny", "phi", 97, 512)
    assert (card.kv_heads_per_token, card.head_size, card.eos_token_ids) == (2 * 2 * 2, 8, (2,))
    assert card.stored_bytes == (tmp_path / "model.safetensors").stat().st_size
    save_undeclared(tmp_path / "one", "gpt_bigcode")
    card = read_causal_info(Location("one", tmp_path / "one"))
    assert (card.kv_heads_per_token, card.head_size) == (2 * 2 * 1, 8)


def test_a_declared_model_has_the_same_card(tmp_path: Path):
    save_tiny(tmp_path, "qwen3")
    location = Location("tiny", tmp_path)
    assert read_causal_info(location) == read_info(location)


def test_an_architecture_without_a_declaration_is_told_of_the_backend(tmp_path: Path):
    save_undeclared(tmp_path, "phi")
    with pytest.raises(Refused, match=r"PhiForCausalLM .*--backend transformers may serve it"):
        read_info(Location("tiny", tmp_path))
