"""Towers of checkpoints: no key and no weight is left unread, and none is made up."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.pictures.layouts import FAMILIES as LAYOUTS
from draftwerk.pictures.tower import Tower, opened
from draftwerk.pictures.tower_messages import PictureWork, TowerOptions
from draftwerk.pictures.tower_parts import check_weights
from tests.support.tiny_pictures import FAMILIES, picture, save_pictured

Weights = dict[str, torch.Tensor]
DIGEST = "0" * 44


def tower(directory: Path) -> Tower:
    rows = directory / "rows"
    rows.mkdir(exist_ok=True)
    return Tower(TowerOptions(str(directory), str(rows), 1))


def configured(directory: Path, **keys: Any) -> Path:
    """Change keys of a folder's image processor."""
    path = directory / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | keys))
    return directory


def without(weights: Weights, name: str) -> None:
    del weights[name]


def of_another_shape(weights: Weights, name: str) -> None:
    weights[name] = torch.cat([weights[name]] * 2)


def under_another_name(weights: Weights, name: str) -> None:
    weights[name + "s"] = weights[name].clone()


@pytest.mark.parametrize("change", [without, of_another_shape, under_another_name])
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llava", "multi_modal_projector.linear_1.weight"),
        ("qwen3_vl", "model.visual.blocks.1.attn.qkv.bias"),
    ],
)
def test_no_weight_is_made_up_or_left_out(
    tmp_path: Path, family: str, name: str, change: Callable[[Weights, str], None]
) -> None:
    save_pictured(family, tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    change(weights, name)
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(Refused, match=name.removeprefix("model.")):
        tower(tmp_path)


def test_weights_of_the_text_and_buffers_are_no_tower() -> None:
    names = ["lm_head.weight", "model.language_model.norm.weight", "model.a.position_ids"]
    nothing: dict[str, Any] = {"missing_keys": [], "mismatched_keys": []}
    check_weights(nothing | {"unexpected_keys": names})
    with pytest.raises(Refused, match=r"'model.a.bias' is not supported"):
        check_weights(nothing | {"unexpected_keys": [*names, "model.a.bias"]})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_processor_refuses_keys_by_name_that_it_does_not_know(
    tmp_path: Path, family: str
) -> None:
    save_pictured(family, tmp_path)
    tower(configured(tmp_path, video_sampling={"fps": 1}, processor_class="A", do_frown=None))
    with pytest.raises(Refused, match="'image_meen'"):
        tower(configured(tmp_path, image_meen=[0, 0, 0]))


@pytest.mark.parametrize(
    "keys",
    [
        {"image_mean": [0.5]},
        {"image_mean": [float("nan")] * 3},
        {"image_std": [0, 0, 0]},
        {"rescale_factor": "x"},
    ],
)
def test_values_that_no_picture_survives_are_refused(tmp_path: Path, keys: Any) -> None:
    save_pictured("idefics3", tmp_path)
    with pytest.raises(Refused, match="image processor"):
        tower(configured(tmp_path, **keys))


def test_a_picture_that_a_model_does_not_take_is_told_and_ends_nothing(tmp_path: Path) -> None:
    save_pictured("gemma3", tmp_path)
    found = tower(configured(tmp_path, do_resize=False))
    fault = found.read(PictureWork(DIGEST, picture(1, (40, 56)))).fault
    assert "no picture of 40 x 56 pixels" in fault
    assert not found.read(PictureWork(DIGEST, picture(1, (64, 64)))).fault


def test_features_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    save_pictured("llava", tmp_path)
    found = tower(tmp_path)
    with torch.no_grad():
        found.model.multi_modal_projector.linear_1.bias.fill_(torch.inf)
        found.model.multi_modal_projector.linear_2.weight.fill_(-torch.inf)
    assert "finite" in found.read(PictureWork(DIGEST, picture(1))).fault


def test_processors_of_text_and_pictures_have_the_last_word() -> None:
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
    from transformers.models.internvl.processing_internvl import InternVLProcessor

    kinds: dict[str, Any] = {"Gemma3": Gemma3Processor, "InternVL": InternVLProcessor}
    layout: Any = None
    for name, kind in kinds.items():
        given = LAYOUTS[f"{name}ForConditionalGeneration"].given(layout)
        assert given.items() <= kind.images_kwargs.items()
        assert {*given} == {
            each for each in kind.images_kwargs if each in ("crop_to_patches", "do_pan_and_scan")
        }


def test_what_a_checkpoint_says_of_tiles_is_overruled(tmp_path: Path) -> None:
    sizes = list[int]()
    for says in (True, False):
        save_pictured("internvl", tmp_path / str(says))
        found = tower(configured(tmp_path / str(says), crop_to_patches=says))
        sizes.append(found.read(PictureWork(DIGEST, picture(1, (90, 30)))).rows)
    assert sizes[0] == sizes[1] > 4


def test_grey_of_16_bits_is_seen_by_its_upper_eight() -> None:
    deep = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    data = BytesIO()
    Image.fromarray(deep).save(data, "PNG")
    pixels = np.array(opened(data.getvalue()))
    assert (pixels == (deep // 257)[..., None]).all()
