"""Every row of the table says what Transformers' class of that name does."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.architectures import ARCHITECTURES, Architecture, completed
from draftwerk.model.checkpoint.families import (
    cohere,
    experts,
    gemma,
    gemma4,
    glm,
    granite,
    granite_hybrid,
    lfm,
    llama,
    olmo,
    qwen_next,
)
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.inventory import inventory
from draftwerk.model.checkpoint.supported import sizes_of
from draftwerk.model.checkpoint.text_part import HEAD, text_tensors
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

FILES = (
    *(cohere, experts, gemma, gemma4, glm, granite, granite_hybrid),
    *(lfm, llama, olmo, qwen_next),
)
rows = pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.hf_name)
SWITCHES = ("attention_bias", "mlp_bias", "tie_word_embeddings", "attention_out_bias")
SETTINGS = [tuple(at != number for at in range(4)) for number in range(4)] + [(False,) * 4]
"""Every two values of two switches are in one of these."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.__name__.rpartition(".")[2])
def test_each_row_of_a_familys_file_is_served_and_has_a_tiny_model_that_is_compared(file) -> None:
    assert file.ROWS
    for row in file.ROWS:
        assert ARCHITECTURES.count(row) == 1
        assert type(tiny_model(row.model_type)).__name__ == row.hf_name


@pytest.mark.parametrize("field", ["hf_name", "model_type"])
def test_no_class_is_served_by_two_rows(field: str) -> None:
    names = [getattr(row, field) for file in FILES for row in file.ROWS]
    assert sorted(names) == sorted({getattr(row, field) for row in ARCHITECTURES})


@rows
def test_a_class_without_its_head_is_the_row_too(row: Architecture) -> None:
    model = tiny_model(row.model_type).base_model
    assert type(model).__name__ == row.base_name
    hf = {**model.config.to_dict(), "architectures": [row.base_name]}
    assert completed(hf)["architectures"] == [row.hf_name]


@rows
@pytest.mark.parametrize("switches", SETTINGS)
def test_the_tensors_are_those_that_the_class_has(
    row: Architecture, switches: tuple[bool, ...], tmp_path: Path
):
    model = tiny_model(row.model_type, **dict(zip(SWITCHES, switches, strict=True)))
    has_scalars = any(name.endswith("layer_scalar") for name in model.state_dict())
    is_plain = row.experts is None and not has_scalars
    if is_plain:
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    else:  # a file has them otherwise than the class
        model.save_pretrained(tmp_path)
        held = text_tensors(stored_tensors(tmp_path))
        shapes = {name: each.shape for name, each in held.items()}
    required, optional, _ = inventory(
        completed(model.config.to_dict() | {"architectures": [row.hf_name]})
    )
    absent = {} if is_plain else {HEAD: (VOCAB, model.config.hidden_size)}
    assert required | optional in (shapes, shapes | absent)
    assert optional.keys() <= {HEAD} | {name for name in shapes if name.endswith("o_proj.bias")}


@rows
def test_heads_that_a_config_leaves_out_are_those_of_the_class(row: Architecture):
    config = FAMILIES[row.model_type].config_class(hidden_size=320, num_attention_heads=4)
    config.allow_global_per_layer_attribute_access = True
    given = {"architectures": [row.hf_name], "hidden_size": 320, "num_attention_heads": 4}
    heads = sizes_of(completed(given))
    assert (config.num_key_value_heads or 4) == heads.num_kv_heads
    assert (getattr(config, "head_dim", None) or 80) == heads.head_size
