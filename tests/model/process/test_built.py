"""What names the bytes of pages: which servers understand each other's blocks."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftwerk.model.checkpoint.files import content
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.built import page_fingerprint
from tests.support.tiny_gguf import save_gguf

ALONE = ModelOptions(pages_descriptor=1)
AMONG_OTHERS = replace(ALONE, hands_over_pages=True)


pytestmark = pytest.mark.usefixtures("no_tokenizer")


def name_of(path: Path, options: ModelOptions) -> str:
    return page_fingerprint(options, locate(str(path)).directory, ())


def test_one_file_in_two_places_has_one_name_among_servers(tmp_path: Path) -> None:
    first = save_gguf(tmp_path / "first.gguf", "llama", "Q4_0")
    second = tmp_path / "elsewhere" / "second.gguf"
    second.parent.mkdir()
    second.write_bytes(first.read_bytes())
    os.utime(second, (1e9, 1e9))
    assert name_of(first, AMONG_OTHERS) == name_of(second, AMONG_OTHERS) != ""
    assert name_of(first, ALONE) != name_of(second, ALONE)
    other = save_gguf(tmp_path / "other.gguf", "llama", "Q4_0", seed=1)
    assert name_of(other, AMONG_OTHERS) != name_of(first, AMONG_OTHERS)
    assert name_of(first, replace(AMONG_OTHERS, dtype="int8")) != name_of(first, AMONG_OTHERS)


def test_a_file_is_hashed_at_the_first_start_and_never_by_a_server_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    hashed: list[Path] = []
    digest = content.hashed_content
    monkeypatch.setattr(content, "hashed_content", lambda file: hashed.append(file) or digest(file))
    monkeypatch.setattr(content, "SETTLED_NS", 0)
    name_of(path, ALONE)
    assert hashed == []
    first = name_of(path, AMONG_OTHERS)
    assert path in hashed
    count = len(hashed)
    assert name_of(path, AMONG_OTHERS) == first
    assert len(hashed) == count


def test_pages_that_are_no_one_elses_have_no_name(tmp_path: Path) -> None:
    assert page_fingerprint(ModelOptions(), tmp_path, ()) == ""
