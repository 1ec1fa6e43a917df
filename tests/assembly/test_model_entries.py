"""Words, folders and files of models."""

from math import inf
from pathlib import Path
from typing import Any

import pytest

from draftwerk.api.cli.arguments import parser, settings_of
from draftwerk.api.shared.config import Settings, load
from draftwerk.assembly.model_entries import KEEP_ALIVE_S, model_entries, serves_several
from draftwerk.settings.setting_fields import ConfigError


def settings(*words: str) -> Settings:
    """Return the settings of `draftwerk serve` with these words."""
    parsed = vars(parser().parse_args(["serve", *words]))
    del parsed["command"]
    return settings_of(parsed)


def entries(*words: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return each model's path and names."""
    found = model_entries(settings(*words))
    return [(each.settings.model, each.settings.served_model_name) for each in found]


def test_one_model_is_served_as_before_unless_it_is_to_be_unloaded(tmp_path: Path) -> None:
    assert not serves_several(settings())
    assert not serves_several(settings("org/name"))
    (tmp_path / "config.json").write_text("{}")
    assert not serves_several(settings(str(tmp_path)))
    assert serves_several(settings("org/name", "--keep-alive", "5m"))
    assert serves_several(settings("a", "b"))


def test_several_words_are_several_models() -> None:
    assert entries("a/b", "c/d", "--also", "e/f") == [("a/b", ()), ("c/d", ()), ("e/f", ())]
    assert entries("a/b", "SmolLM2-135M-Instruct") == [("a/b", ()), ("", ())]
    (first, _) = model_entries(settings("a/b", "c/d", "--dtype", "int8"))
    assert (first.settings.dtype, first.keep_alive_s) == ("int8", KEEP_ALIVE_S)


def test_a_folder_has_the_models_in_it_with_their_names(tmp_path: Path) -> None:
    for name in ("two/config.json", "one-Q4.gguf", "deep/three-00001-of-00002.gguf",
                 "deep/three-00002-of-00002.gguf", ".venv/four.gguf", "notes.txt"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert serves_several(settings(str(tmp_path)))
    assert entries(str(tmp_path)) == [
        (str(tmp_path / "one-Q4.gguf"), ("one-Q4",)),
        (str(tmp_path / "deep/three-00001-of-00002.gguf"), ("three",)),
        (str(tmp_path / "two"), ("two",)),
    ]


def test_a_file_gives_each_model_a_name_and_settings_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[[model]]\nname = "a"\npinned = true\nkv-memory = "1GiB"\n'
        '[[model]]\npath = "org/b"\nkeep_alive = -1\ndtype = "int8"\n'
    )
    first, second = model_entries(settings("--models", str(file), "--dtype", "bf16"))
    assert (first.settings.model, first.settings.served_model_name) == ("", ("a",))
    assert (first.settings.kv_memory, first.settings.dtype) == ("1GiB", "bf16")
    assert (first.is_pinned, first.keep_alive_s) == (True, KEEP_ALIVE_S)
    assert (second.settings.model, second.settings.dtype) == ("org/b", "int8")
    assert (second.is_pinned, second.keep_alive_s) == (False, inf)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must have rows"),
        ("[[models]]\n", "must have rows"),
        ("[[model]]\nnam = 'a'", "row 1: there is no setting 'nam'"),
        ("[[model]]\nmodel = 'a'", "there is no setting 'model'"),
        ("[[model]]\nport = 1", "there is no setting 'port'"),
        ("[[model]]\n[[model]]\ndtype = 'fp99'", "row 2: .*dtype"),
        ("[[model]]\nkeep_alive = 'soon'", "row 1: keep_alive: it must be a number of seconds"),
        ("[[model]]\npinned = 'perhaps'", "row 1: .*pinned"),
        ("[[model]]\ntensor_parallel = 2", "tensor_parallel: a model that is loaded on request"),
        ("model = 1", "cannot be read as rows"),
        ("[[model", "cannot be read as rows"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_row(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        model_entries(settings("--models", str(file)))
    with pytest.raises(ConfigError, match="cannot be read"):
        model_entries(settings("--models", str(tmp_path / "none.toml")))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"also": ["b"], "served_model_name": ["x"]}, "served_model_name: it is of one model"),
        ({"also": ["b"], "kv_store": "/x"}, "kv_store: it is of one model"),
        ({"also": ["b"], "lora": ["a=."]}, "lora: it is of one model"),
        ({"also": ["b"], "draft": "x"}, "draft: it is of one model"),
        ({"also": ["b"], "pipeline_parallel": 2}, "pipeline_parallel: a model that is loaded"),
        ({"also": ["b"], "replicas": 2}, "replicas: each has one model"),
        ({"models": "f", "model": "a"}, "models: the file has all models"),
        ({"keep_alive": "soon"}, "keep_alive: it must be auto, or a number of seconds"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_entries(load({"model": "a", **fields}, {}))
