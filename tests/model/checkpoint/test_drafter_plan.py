"""A drafter that does not fit is refused by the field, or the tensor, that is amiss."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.drafter_plan import check_same, check_shapes, layers_as
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.unsupported import Refused

STORED = {"fc.weight": StoredTensor(Path("x"), "F32", (4, 8))}


def test_a_size_is_the_models() -> None:
    check_same("vocab_size", 9, 9)
    with pytest.raises(Refused, match=r"config\.json: vocab_size is 7, and the model's is 9"):
        check_same("vocab_size", 7, 9)


def test_every_tensor_is_there_in_its_shape() -> None:
    check_shapes(STORED, {"fc.weight": (4, 8)})
    with pytest.raises(Refused, match="it lacks norm"):
        check_shapes(STORED, {"norm": (8,)})
    with pytest.raises(Refused, match=r"fc\.weight is \[4, 8\], not \[8, 4\]"):
        check_shapes(STORED, {"fc.weight": (8, 4)})


def test_its_layers_are_a_family_of_the_table() -> None:
    with pytest.raises(Refused, match="NoSuchForCausalLM is not supported"):
        layers_as({"hidden_size": 8}, "NoSuchForCausalLM", "no_such")
