"""Every row of a recurrent layer's inputs is some tensor's, once."""

from typing import Any, Literal

import pytest

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.recurrent_tensors import channels, input_rows

SIZES: dict[str, Any] = {
    **{"key_heads": 2, "value_heads": 4, "key_size": 3, "value_size": 5, "kernel_size": 4}
}
ROWS = [row for row in ARCHITECTURES if row.recurrence is not None]


@pytest.mark.parametrize("rule", ["delta", "mamba"])
@pytest.mark.parametrize("of_gguf", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hf_name)
def test_rows_are_all_there_and_none_is_taken_twice(
    row: Any, of_gguf: bool, rule: Literal["delta", "mamba"]
) -> None:
    recurrence = Recurrence(rule=rule, **SIZES)
    spans = input_rows(row, recurrence, of_gguf)
    taken = [(name, at) for name, span in spans for at in span]
    assert len(taken) == len(set(taken)) == sum(recurrence.rows)


@pytest.mark.parametrize("rule", ["delta", "mamba"])
def test_channels_are_those_of_the_convolution(rule: Literal["delta", "mamba"]) -> None:
    recurrence = Recurrence(rule=rule, **SIZES)
    found = sorted(at for span in channels(recurrence) for at in span)
    assert found == [*range(recurrence.channels)]
