"""A model's time is that of its newest file."""

import os
from pathlib import Path

from draftwerk.assembly.loading.model_card import weights_time


def test_a_models_time_is_that_of_its_newest_file(tmp_path: Path) -> None:
    for name, seconds in (("config.json", 1_700_000_000), ("model.safetensors", 1_600_000_000)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (seconds, seconds))
    os.utime(tmp_path, (1_500_000_000, 1_500_000_000))
    assert weights_time(tmp_path) == 1_700_000_000
