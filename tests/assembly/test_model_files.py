"""`draftwerk pull`, `models` and `rm`, against a hub on this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from draftwerk.__main__ import main
from draftwerk.model.checkpoint.family_table import family_rows
from tests.support.stand_in_hub import StandInHub, stand_in_hub

WEIGHTS = b"GGUF" + os.urandom(20_000)


class CommandLine:
    """Runs the command with a hub's folder of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.capsys, self.folder = capsys, folder

    def __call__(self, *words: str, code: int = 0) -> str:
        """Return what a command prints; errors where it fails."""
        assert main(words) == code
        printed = self.capsys.readouterr()
        return printed.err if code else printed.out

    def models(self) -> list[str]:
        """Return the names of pulled models."""
        lines = self("models").splitlines()
        return [line.split("  ")[-1].strip() for line in lines if "org/m" in line]


@pytest.fixture
def draftwerk(
    hub: StandInHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return CommandLine(capsys, tmp_path / "hub")


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    with stand_in_hub() as running:
        running.repositories["org/m-GGUF"] = {
            "m-Q4_K_M.gguf": WEIGHTS,
            "m-Q8_0.gguf": WEIGHTS[::-1],
        }
        yield running


def test_a_model_is_pulled_listed_and_removed(hub: StandInHub, draftwerk: CommandLine):
    said = draftwerk("pull", "org/m-GGUF:Q4_K_M")
    assert "asking the hub for org/m-GGUF:Q4_K_M" in said
    assert "serve it: draftwerk serve org/m-GGUF:Q4_K_M" in said
    draftwerk("pull", "hf.co/org/m-GGUF:Q8_0")
    assert draftwerk.models() == ["org/m-GGUF/m-Q4_K_M.gguf", "org/m-GGUF/m-Q8_0.gguf"]
    assert "0.0 MB freed" in draftwerk("rm", "org/m-GGUF:Q4_K_M")
    assert draftwerk.models() == ["org/m-GGUF/m-Q8_0.gguf"]
    assert len(list(draftwerk.folder.glob("*/blobs/*"))) == 1
    draftwerk("rm", "org/m-GGUF")
    assert draftwerk.models() == []
    assert not list(draftwerk.folder.glob("models--*"))


def test_a_model_without_a_declaration_is_listed_with_its_backend(
    hub: StandInHub, draftwerk: CommandLine
):
    for name, architecture in (("org/m", "PhiForCausalLM"), ("org/m-two", "LlamaForCausalLM")):
        config = f'{{"architectures": ["{architecture}"]}}'.encode()
        hub.repositories[name] = {"config.json": config, "model.safetensors": WEIGHTS}
    draftwerk("pull", "org/m")
    draftwerk("pull", "org/m-two")
    lines = draftwerk("models").splitlines()
    assert [line for line in lines if line.endswith("org/m  (--backend transformers, slower)")]
    assert [line for line in lines if line.endswith("org/m-two")]


def test_what_cannot_be_done_is_one_line(hub: StandInHub, draftwerk: CommandLine):
    for words, said in (
        (("pull", "m"), "m: not a hub name; org/name"),
        (("pull", "org/none"), "has no model org/none"),
        (("pull", "org/m-GGUF:Q2_K"), "which GGUF? it has m-Q4_K_M, m-Q8_0"),
        (("rm", "org/m-GGUF"), "no such model was pulled; `draftwerk models` lists them"),
    ):
        error = draftwerk(*words, code=2)
        assert error.startswith("draftwerk: ") and said in error
        assert len(error.splitlines()) == 1


def test_a_pull_that_ended_midway_is_listed_and_can_be_removed(
    hub: StandInHub, draftwerk: CommandLine
):
    hub.damaged.add("m-Q8_0.gguf")
    assert "is not what the hub names" in draftwerk("pull", "org/m-GGUF:Q8_0", code=2)
    partial = next(draftwerk.folder.glob("models--*/blobs")) / ("ab" * 32 + ".incomplete")
    partial.write_bytes(b"x" * 1000)
    assert "org/m-GGUF  (a pull that ended midway)" in draftwerk("models")
    draftwerk("rm", "org/m-GGUF")
    assert not partial.exists()


def test_families_are_listed_without_a_hub(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--families"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [row.family for row in family_rows()]
    assert lines[-1].startswith("others: --backend transformers")
    assert "safetensors, GGUF (gemma3)" in next(each for each in lines if "gemma3_text" in each)
