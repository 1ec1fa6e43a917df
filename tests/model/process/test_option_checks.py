"""Options are served, or refused by name."""

import pytest

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.option_checks import (
    check_adapters,
)


def test_adapters_and_ranks_do_not_go_together() -> None:
    check_adapters(ModelOptions())
    with pytest.raises(Refused, match="lora and lora_merge"):
        check_adapters(ModelOptions(tensor_parallel=2))
