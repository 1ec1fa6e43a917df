"""`draftwerk models --drafters`: what drafts for a model, by its shape."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from draftwerk.__main__ import main
from draftwerk.assembly.model_reading import model_files
from draftwerk.settings.engine_settings import EngineSettings
from tests.support.dflash_models import HEAD as DFLASH
from tests.support.dflash_models import DFlashOracle
from tests.support.eagle_models import HEAD as EAGLE
from tests.support.eagle_models import EagleOracle
from tests.support.mtp_models import MtpOracle
from tests.support.tiny_models import save_tiny


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


def pulled(hub: Path, drafter: Path) -> Path:
    """Have the hub's folder hold a drafter."""
    files = hub / "models--org--drafter" / "snapshots" / ("a" * 40)
    (files.parents[1] / "blobs").mkdir(parents=True)
    files.mkdir(parents=True)
    for file in drafter.iterdir():
        (files / file.name).write_bytes(file.read_bytes())
    return files


def listed(capsys: pytest.CaptureFixture[str], model: Path) -> list[str]:
    assert main(["models", "--drafters", str(model)]) == 0
    return capsys.readouterr().out.splitlines()


def test_what_lies_beside_a_model_and_was_pulled_is_named(tmp_path, hub, capsys):
    target = tmp_path / "target"
    EagleOracle(target)
    DFlashOracle(tmp_path / "other")
    files = pulled(hub, tmp_path / "other" / DFLASH)
    lines = listed(capsys, target)
    assert any(
        line.startswith(f"--draft-head {target / EAGLE}: an EAGLE-3 layer") for line in lines
    )
    (of_others,) = [line for line in lines if str(files) in line]
    assert "num_target_layers is 6, and the model's is" in of_others
    (fits,) = listed(capsys, tmp_path / "other")[1:]
    assert "a DFlash drafter of 2 layers, which guess 6 tokens at once" in fits


def test_a_models_own_layer_is_named(tmp_path, capsys):
    MtpOracle(tmp_path / "target")
    assert listed(capsys, tmp_path / "target") == [
        "--draft-head mtp: the MTP layer of the model's files"
    ]


def test_none_and_no_model_are_told(tmp_path, capsys):
    save_tiny(tmp_path / "target", "llama")
    (line,) = listed(capsys, tmp_path / "target")
    assert line.startswith("no drafter of layers is here for ")
    assert main(["models", "--drafters", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_doctor_names_what_fits_and_why_the_one_that_is_wanted_does_not(tmp_path):
    target, other = tmp_path / "target", tmp_path / "other"
    EagleOracle(target)
    DFlashOracle(other)
    settings = EngineSettings(model=str(target))
    (found,) = [each for each in model_files(settings) if "draft" in each.subject]
    assert found.state == "good" and found.words.endswith(f"--draft-head {target / EAGLE}")
    settings = EngineSettings(model=str(target), draft_head=str(other / DFLASH))
    (found,) = [each for each in model_files(settings) if "draft" in each.subject]
    assert found.state == "bad" and "num_target_layers is 6" in found.words
