"""`draftwerk doctor --approximate`: what it measures, keeps and refuses."""

import json
from pathlib import Path

import pytest

from draftwerk.__main__ import main
from draftwerk.api.cli.banner import banner
from draftwerk.api.shared.ports import ServedModel
from draftwerk.assembly.approximation_tables import kept_quality
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk_tools.trials.approximation_doctor import KEYS, exact_ones, needle_of
from tests.support.tiny_models import save_tiny_with_text


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(folder, hidden_size=64, intermediate_size=96, head_dim=16)
    return folder


def doctor(*words: str | Path) -> int:
    return main(["doctor", *map(str, words), "--kv-memory", "16MiB"])


def test_what_is_measured_is_kept_with_the_model(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "The sea is wide. " * 8}))
    flags = ("--dtype", "bf16", "--approximate", "kv-int8", "--needle", "128")
    assert doctor(tiny, prompts, *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    (kl,) = (line for line in lines if line.startswith("KL "))
    assert 0 < float(kl.split()[1]) < 0.05
    assert any(line.startswith("needle in 128 tokens: found ") for line in lines)
    (size,) = (line for line in lines if line.startswith("keys and values: "))
    assert size.startswith("keys and values: 160 bytes a token, 0.625 of 256")
    found = EngineSettings(kv_dtype="int8").approximations
    kept = kept_quality(tiny, "bf16", found)
    assert kept is not None and f"{kept.kl_mean:.5f}" == kl.split()[1]
    assert kept_quality(tiny, "fp32", found) is None
    assert kept_quality(tiny, "bf16", ()) is None


def test_the_exact_settings_have_no_approximation() -> None:
    settings = EngineSettings(approximate=("kv-int8",), kv_dtype="int8", dtype="bf16")
    assert exact_ones(settings) == EngineSettings(dtype="bf16")


def test_a_needle_is_in_the_text_and_its_question_at_the_end(tiny: Path) -> None:
    text = TextTokenizer(tiny)
    haystack = text.encode("The sea is wide and blue. " * 200)
    for number in (0, len(KEYS) - 1):
        needle = needle_of(text, haystack, 512, number)
        said = text.decode(needle.tokens)
        assert said.count(KEYS[number]) == 2 and said.endswith("The pass key is")
        assert len(needle.tokens) + len(needle.answer) == 512


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "has no prompts"),
        ("{}", "prompt 1: it has neither `prompt` nor `messages`"),
        ('{"prompt": 1}', "prompt 1: Expected `str`"),
        (json.dumps({"prompt": "sea " * 3000}), "tokens are more than the context has"),
    ],
)
def test_a_bad_line_is_told_of(
    tiny: Path, tmp_path: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    assert doctor(tiny, path, "--approximate", "kv-int8", "--needle", "64") == 2
    assert said in capsys.readouterr().err


def test_a_server_tells_whether_it_was_measured() -> None:
    applied = EngineSettings(kv_dtype="int8").approximations
    card = ServedModel(name="m", context_max=1, approximations=applied)
    said = banner(card, "http://127.0.0.1:1")
    assert "kv-int8; never measured here: draftwerk doctor --approximate kv-int8" in said


def test_a_window_is_measured_on_texts_beyond_it(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "The sea is wide and blue. " * 90}))
    flags = ("--dtype", "bf16", "--approximate", "window:size=256", "--needle", "512")
    assert doctor(tiny, prompts, *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"window:size=256,sinks=128 on {tiny.name}" in lines
    (kl,) = (line for line in lines if line.startswith("KL "))
    assert float(kl.split()[1]) > 0
