"""A model process refuses what its memory cannot hold, instead of dying of it."""

from pathlib import Path

import msgspec
import pytest

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.role import build_role
from tests.support.tiny_models import save_tiny


def test_a_cache_that_no_machine_holds_is_refused(tmp_path: Path):
    save_tiny(tmp_path, "llama")
    options = ModelOptions(
        source=str(tmp_path), dtype="fp32", attention="padded", block_count=2**38, threads=1
    )
    with pytest.raises(Refused, match=r"not enough memory .* smaller --kv-memory: Unable to"):
        build_role("target", msgspec.json.encode(options), lambda _: None)
