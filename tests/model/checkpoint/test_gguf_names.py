"""Names of tensors go from GGUF to Transformers and back."""

import pytest

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.gguf_names import gguf_name, hf_name, names_of, whole_names
from draftwerk.model.checkpoint.unsupported import Refused

ROWS = [row for row in ARCHITECTURES if row.gguf is not None]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hf_name)
def test_names_come_back(row: Architecture) -> None:
    apart = [f"blk.3.{name}.weight" for name in names_of(row)]
    for name in (*apart, *(f"blk.3.{name}" for name in whole_names(row)), "token_embd.weight"):
        ours = hf_name(row, name)
        assert hf_name(row, gguf_name(row, ours)) == ours


def test_another_name_is_refused() -> None:
    with pytest.raises(Refused, match=r"'blk\.0\.nobody\.weight' is not supported"):
        hf_name(ROWS[0], "blk.0.nobody.weight")
