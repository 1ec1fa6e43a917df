"""A model's files as the doctor reads them: what is obeyed, without effect, missing, or refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from draftwerk.assembly.model_findings import Finding
from draftwerk.assembly.model_reading import model_files
from draftwerk.settings.engine_settings import EngineSettings
from tests.support.small_tokenizers import byte_level, saved
from tests.support.tiny_models import save_tiny

CHAT = "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_tiny(folder, "llama", vocab_size=400)
    saved(byte_level(), folder, CHAT)
    fields = {"do_sample": False, "suppress_tokens": [3], "max_length": 20}
    (folder / "generation_config.json").write_text(json.dumps(fields))
    return folder


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def found(folder: Path, **more: Any) -> dict[str, Finding]:
    return {each.subject: each for each in model_files(EngineSettings(model=str(folder), **more))}


def test_what_a_model_is_and_what_of_it_is_obeyed(whole: Path) -> None:
    said = found(whole)
    assert all(each.state != "bad" for each in said.values()), said
    assert "llama" in said["weights"].words
    assert "temperature 0, never 1 tokens" in said["sampling"].words
    assert "max_length" in said["generation_config.json, without effect"].words
    assert "words of hermes" in said["tools"].words


@pytest.mark.parametrize(
    ("file", "subject"), [("tokenizer.json", "tokenizer"), ("model.safetensors", "weights")]
)
def test_what_is_missing_is_said_by_name(copied: Path, file: str, subject: str) -> None:
    (copied / file).unlink()
    assert found(copied)[subject].state == "bad"


def test_what_refuses_a_model_is_said_without_loading_it(copied: Path) -> None:
    (copied / "generation_config.json").write_text('{"no_repeat_ngram_size": 3}')
    assert "no_repeat_ngram_size 3" in found(copied)["sampling"].words
    assert found(copied, generation_config="none").get("sampling") is None


@pytest.mark.parametrize(
    ("template", "state", "words"),
    [
        ("{{ raise_exception('No,\nnot so') }}", "poor", "a plain question is refused: the chat "
         "template (chat_template.jinja): No, not so"),
        ("{% if tools %}{{ 9 ** (9 ** 9) }}{% endif %}" + CHAT, "bad",
         "the chat template (chat_template.jinja): a value would be larger"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "bad",
         "the chat template (chat_template.jinja): it nests calls or values too deeply"),
        (" " * (2**20 + 1), "bad", "chat_template.jinja: chat templates of 1048577 characters"),
        ("{% for %}", "bad", "chat_template.jinja: the chat template cannot be read: line 1: Exp"),
    ],
)  # fmt: skip
def test_a_template_that_is_not_to_be_had_is_said_in_a_line(
    copied: Path, template: str, state: str, words: str
) -> None:
    (copied / "chat_template.jinja").write_text(template)
    faults = [each for each in found(copied).values() if each.state == state]
    assert any(words in each.words and "\n" not in each.words for each in faults), faults


def test_nothing_is_read_of_a_hubs_name() -> None:
    assert found(Path("org/name")) == {}
