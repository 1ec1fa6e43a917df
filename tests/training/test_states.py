"""What is kept of a model's texts is found for that model and those texts alone."""

from pathlib import Path

import pytest

from tests.support.tiny_models import save_tiny
from training.states import Estimate, kept_path

TEXTS = [[1, 2, 3], [4, 5]]


def test_another_model_or_other_texts_have_a_name_of_their_own(tmp_path: Path):
    for seed in (1, 2):
        save_tiny(tmp_path / str(seed), "llama", seed=seed)
    file, first, second = tmp_path / "texts.jsonl", tmp_path / "1", tmp_path / "2"
    path = kept_path(file, TEXTS, first, 64)
    assert path == kept_path(file, [*TEXTS], first, 64)
    assert path.parent == tmp_path and path.name.startswith("texts.")
    others = [
        kept_path(file, TEXTS, second, 64),
        kept_path(file, [[1, 2, 3, 4], [5]], first, 64),
        kept_path(file, TEXTS, first, 32),
    ]
    assert len({path, *others}) == 4


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(OSError, match="cannot be read"):
        kept_path(tmp_path / "texts.jsonl", TEXTS, tmp_path / "nowhere")


def test_what_is_left_is_estimated_from_what_was_done(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr("training.states.perf_counter", lambda: now)
    estimate = Estimate(20, 100)
    now = 10.0
    assert estimate.line(40) == "40/100, 10 s, about 30 s to go"
