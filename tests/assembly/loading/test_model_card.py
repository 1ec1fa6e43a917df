"""What clients are shown: a model's time, and where its weights are read from."""

import os
from pathlib import Path

from draftwerk.assembly.loading.model_card import on_disk, weights_time
from draftwerk.speculative.protocol.frames import Ready


def test_a_models_time_is_that_of_its_newest_file(tmp_path: Path) -> None:
    for name, seconds in (("config.json", 1_700_000_000), ("model.safetensors", 1_600_000_000)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (seconds, seconds))
    os.utime(tmp_path, (1_500_000_000, 1_500_000_000))
    assert weights_time(tmp_path) == 1_700_000_000


def test_weights_in_a_file_are_told_with_what_a_token_takes() -> None:
    ready = Ready(device="cpu", attention="native", exact=True, weight_bytes=10**9, weight_ms=120.4)
    said = "packed in /fast: a token reads 1000 MB of them in about 120 ms"
    assert on_disk("/fast", ready) == said
    assert not on_disk("", ready)
