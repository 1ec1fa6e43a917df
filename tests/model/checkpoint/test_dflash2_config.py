"""Sizes and scales of a DFlash 2, each refused by its field."""

from typing import Any

import pytest

from draftwerk.model.checkpoint.dflash2_config import second_config, second_shapes
from draftwerk.model.checkpoint.unsupported import Refused

SAID: dict[str, Any] = {
    "conv_kernel_size": 4,
    "conv_group_size": 8,
    "selector_rank": 2,
    "selector_top_k": 5,
}


def test_without_any_of_its_fields_it_is_the_first_kind() -> None:
    assert second_config({"mask_token_id": 1}, 64) is None


def test_scales_have_their_defaults_and_tensors_their_shapes() -> None:
    found = second_config(SAID, 64)
    assert found is not None and (found.kernel_size, found.group_size, found.rank) == (4, 8, 2)
    assert (found.embedding_scale, found.output_multiplier, found.softcap) == (1.0, 1.0, 0.0)
    layers = {"hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 1}
    shapes = second_shapes(found, layers)
    assert shapes["layers.0.mlp_conv.base_kernel"] == (2, 4, 64)
    assert shapes["layers.0.mlp_conv.kernel_projection.weight"] == (2 * 4 * 8, 64)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("conv_group_size", 7),
        ("selector_top_k", 5000),
        ("output_multiplier", "2"),
        ("conv_kernel_size", None),
    ],
)
def test_each_field_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(Refused, match=rf"dflash_config\.{field}"):
        second_config({**SAID, field: value}, 64)
