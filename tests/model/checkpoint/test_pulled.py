"""Models of the hub's cache: none without a cache, and none is removed that is not there."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from draftwerk.model.checkpoint.pulled import pulled_models, pulled_paths, remove_pulled
from draftwerk.model.checkpoint.unsupported import Refused


def test_without_a_cache_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    assert pulled_models() == [] and pulled_paths() == []


@pytest.mark.parametrize("name", ["a/b", "a/b/c.gguf", "a/b:Q4_0", "nothing"])
def test_what_was_not_pulled_cannot_be_removed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(Refused, match="no such model was pulled"):
        remove_pulled(name)
