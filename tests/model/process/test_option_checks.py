"""Options are served, or refused by name."""

import pytest
import torch

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.option_checks import (
    check_adapters,
    check_kv_dtype,
    check_torch,
    device_of,
)


def test_adapters_and_ranks_do_not_go_together() -> None:
    check_adapters(ModelOptions())
    with pytest.raises(Refused, match="lora and lora_merge"):
        check_adapters(ModelOptions(tensor_parallel=2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ModelOptions(dtype="int4"), "dtype 'int4'"),
        (ModelOptions(weight_store="here"), "weight_store"),
        (ModelOptions(kv_dtype="fp8"), "kv_dtype 'fp8'"),
    ],
)
def test_torch_alone_refuses_what_kernels_are_needed_for(options: ModelOptions, words: str) -> None:
    with pytest.raises(Refused, match=words):
        check_torch(options)


def test_formats_that_are_served_are_not_refused() -> None:
    check_torch(ModelOptions())
    check_kv_dtype(ModelOptions(kv_dtype="int8"), "int8")


def test_a_device_is_one_of_three() -> None:
    assert device_of("cpu") == torch.device("cpu")
    with pytest.raises(Refused, match="'tpu' is not one of"):
        device_of("tpu")
