"""Towers of `mmproj` files give the rows of the checkpoint that they were written from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.pictures.mmproj.mmproj_tower import mmproj_tower
from draftwerk.pictures.tower import Tower
from draftwerk.pictures.tower_messages import PictureRead, PictureWork, TowerOptions
from tests.support.gguf_of_pictures import save_mmproj
from tests.support.tiny_pictures import picture, save_pictured

PICTURES = [picture(1), picture(2, (64, 40), "JPEG"), picture(3, (200, 30))]


class Saved:
    """A model, and its towers' rows."""

    def __init__(self, family: str, folder: Path) -> None:
        self.directory, self.rows = folder / "model", folder / "rows"
        self.rows.mkdir()
        self.model = save_pictured(family, self.directory)
        self.picture_id = self.model.config.image_token_id

    def tower(self, mmproj: Path | None = None) -> Tower:
        own = str(self.directory), str(self.rows), 1
        return Tower(TowerOptions(*own, str(mmproj or ""), self.picture_id))

    def read(self, tower: Tower, data: bytes) -> tuple[PictureRead, Any]:
        found = tower.read(PictureWork("0" * 32, data))
        (path,) = (each for each in self.rows.iterdir() if each.is_file())
        return found, np.load(path)


@pytest.fixture(scope="module", params=["smolvlm", "idefics3"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(("kind", "error"), [("F32", 0.0), ("F16", 2e-2), ("Q8_0", 0.2)])
def test_rows_are_the_checkpoints(saved: Saved, tmp_path: Path, kind: str, error: float) -> None:
    path = save_mmproj(saved.model, saved.directory, tmp_path / "mmproj.gguf", kind)
    own, other = saved.tower(), saved.tower(path)
    for data in PICTURES:
        wanted, rows = saved.read(own, data)
        found, others = saved.read(other, data)
        assert (found.text, found.rows) == (wanted.text, wanted.rows)
        assert (found.features == wanted.features) == (kind == "F32")
        assert np.abs(others - rows).max() <= error * np.abs(rows).max()


def test_a_file_that_does_not_say_how_large_pictures_may_be_has_the_usual(
    saved: Saved, tmp_path: Path
) -> None:
    path = save_mmproj(
        saved.model, saved.directory, tmp_path / "mmproj.gguf", without="preproc_image_size"
    )
    processor = mmproj_tower(path, saved.picture_id).processor
    assert (processor.size["longest_edge"], processor.max_image_size["longest_edge"]) == (128, 32)


@pytest.mark.parametrize("name", ["v.blk.1.attn_q.weight", "mm.model.fc.weight", "v.post_ln.bias"])
def test_a_tensor_that_is_missing_is_named(saved: Saved, tmp_path: Path, name: str) -> None:
    path = save_mmproj(saved.model, saved.directory, tmp_path / "mmproj.gguf", without=name)
    with pytest.raises(Refused, match=f"mmproj.gguf: tensor '{name}' is missing"):
        mmproj_tower(path, saved.picture_id)


def test_a_tensor_more_and_one_of_another_shape_are_named(saved: Saved, tmp_path: Path) -> None:
    def more(writer: Any) -> None:
        writer.add_tensor("v.class_embd", np.zeros(32, np.float32))

    path = save_mmproj(saved.model, saved.directory, tmp_path / "mmproj.gguf", more=more)
    with pytest.raises(Refused, match=r"tensor 'v\.class_embd' is not supported"):
        mmproj_tower(path, saved.picture_id)

    def shorter(writer: Any) -> None:
        writer.add_tensor("v.post_ln.bias", np.zeros(16, np.float32))

    name = "v.post_ln.bias"
    path = save_mmproj(saved.model, saved.directory, path, without=name, more=shorter)
    with pytest.raises(Refused, match=r"'v\.post_ln\.bias' is \[16\], its keys call for \[32\]"):
        mmproj_tower(path, saved.picture_id)
