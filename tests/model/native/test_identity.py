"""`system_fingerprint`: it follows what decides a text, and nothing else."""

from pathlib import Path

import pytest

from draftwerk.model.fingerprint import identity
from draftwerk.model.fingerprint.identity import numerics_version, system_fingerprint

FILES = {
    "model.safetensors": b"weights",
    "config.json": b"{}",
    "tokenizer.json": b"tokens",
    "chat_template.jinja": b"template",
}


def model(directory: Path, **changes: bytes) -> Path:
    directory.mkdir()
    for name, content in FILES.items():
        stem = name.partition(".")[0]
        (directory / name).write_bytes(changes.get(stem, content))
    return directory


def test_equal_files_and_words_have_it_wherever_they_are(tmp_path: Path) -> None:
    one, other = model(tmp_path / "one"), model(tmp_path / "other")
    found = system_fingerprint(one, tmp_path, ("bf16", "auto"))
    assert found.startswith("fp_") and len(found) == 19
    assert system_fingerprint(other, tmp_path, ("bf16", "auto")) == found


@pytest.mark.parametrize("stem", ["model", "config", "tokenizer", "chat_template"])
def test_any_other_file_changes_it(tmp_path: Path, stem: str) -> None:
    one, other = model(tmp_path / "one"), model(tmp_path / "other", **{stem: b"else"})
    assert system_fingerprint(one, tmp_path, ()) != system_fingerprint(other, tmp_path, ())


@pytest.mark.parametrize(
    "name",
    [
        *("tokenizer.model", "tekken.json", "qwen.tiktoken", "special_tokens_map.json"),
        *("generation_config.json", "additional_chat_templates/tool_use.jinja"),
    ],
)
def test_any_further_file_of_texts_changes_it(tmp_path: Path, name: str) -> None:
    one, found = model(tmp_path / "one"), set[str]()
    for content in ("", "a", "b"):
        if content:
            (one / name).parent.mkdir(exist_ok=True)
            (one / name).write_text(content)
        found.add(system_fingerprint(one, tmp_path, ()))
    assert len(found) == 3


def test_any_other_word_changes_it(tmp_path: Path) -> None:
    one = model(tmp_path / "one")
    assert system_fingerprint(one, tmp_path, ("a",)) != system_fingerprint(one, tmp_path, ("b",))


def test_formats_have_numerics_of_their_own() -> None:
    kinds = [
        *((dtype, "auto") for dtype in ("fp32", "bf16", "int8", "int4", "stored")),
        ("bf16", "int8"),
    ]
    assert len({numerics_version(*kind) for kind in kinds}) == len(kinds)


def test_numerics_change_with_the_committed_bits_of_their_format_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {dtype: numerics_version(dtype, "auto") for dtype in ("bf16", "int4")}
    text = identity.EXPECTED.read_text()
    at = text.index('"tiny qwen int4": "') + len('"tiny qwen int4": "')
    changed = tmp_path / "fingerprints.json"
    changed.write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    monkeypatch.setattr(identity, "EXPECTED", changed)
    assert numerics_version("bf16", "auto") == before["bf16"]
    assert numerics_version("int4", "auto") != before["int4"]
