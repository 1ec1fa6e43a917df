"""Files of towers beside GGUF models: found, and refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.pictures.mmproj.mmproj_file import beside, read_mmproj, tower_file
from tests.support.gguf_files import add_fields
from tests.support.gguf_of_pictures import NAME, save_mmproj, save_text
from tests.support.tiny_pictures import HIDDEN, save_pictured

Saved = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp("smolvlm")
    return save_pictured("smolvlm", directory), directory


@pytest.fixture
def text(model: tuple[Any, Path], tmp_path: Path) -> Path:
    return save_text(*model, tmp_path / "text.gguf")


@pytest.fixture
def saved(model: tuple[Any, Path], tmp_path: Path) -> Saved:
    return lambda file="mmproj.gguf", **more: save_mmproj(*model, tmp_path / file, **more)


def test_a_file_beside_a_model_is_its_tower(text: Path, saved: Saved) -> None:
    assert tower_file([str(text)], HIDDEN) is None
    saved("tiny-MMPROJ-f16.gguf", kind="F16")
    whole = saved("mmproj-f32.gguf")
    assert len(beside([str(text)])) == 2
    found = tower_file([str(text)], HIDDEN)
    assert found is not None and found.path == whole, "it has rounded least"
    assert found.get("image_size") == 32 and found.get("nothing", 7) == 7


def test_of_several_the_one_of_the_models_name_is_taken(text: Path, saved: Saved) -> None:
    saved("mmproj-a.gguf", name="Another")
    own = saved("mmproj-b.gguf", name=NAME, kind="F16")
    found = tower_file([str(text)], HIDDEN)
    assert found is not None and found.path == own
    own.unlink()
    saved("mmproj-c.gguf", name="A third")
    with pytest.raises(
        Refused, match=r"mmproj-a\.gguf, mmproj-c\.gguf: none says .*'Tiny Pictured'"
    ):
        tower_file([str(text)], HIDDEN)


def test_a_tower_of_another_model_is_told(text: Path, saved: Saved) -> None:
    saved()
    with pytest.raises(Refused, match=f"{HIDDEN} wide, and this one is 64"):
        tower_file([str(text)], 64)


def written(key: str, value: Any) -> Any:
    """Return what writes a field of its own."""
    return lambda writer: add_fields(writer, {key: value})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"projector": "qwen2vl_merger"}, "its family is 'qwen2vl_merger'"),
        ({"projector": "mlp"}, "its family is 'mlp'; of such files idefics3 are read"),
        (
            {"more": written("clip.audio.projector_type", "qwen2a")},
            "its family is 'qwen2a' and 'idefics3'",
        ),
        ({"more": written("clip.use_silu", True)}, "clip.use_silu = True is not supported"),
        ({"more": written("clip.vision.window_size", 8)}, "clip.vision.window_size = 8 is not"),
        ({"without": "scale_factor"}, "clip.vision.projector.scale_factor is missing"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    more: dict[str, Any], said: str, saved: Saved
) -> None:
    with pytest.raises(Refused) as caught:
        read_mmproj(saved(**more))
    assert said in str(caught.value) and "mmproj.gguf: " in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("clip.vision.image_size", 0),
        ("clip.vision.image_size", 2**31),
        ("clip.vision.image_size", "32"),
        ("clip.vision.image_mean", [0.5]),
        ("clip.vision.image_std", [1, 1, 1]),
        ("clip.has_vision_encoder", False),
        ("clip.use_gelu", 1),
        ("clip.vision.attention.layer_norm_epsilon", 1),
    ],
)
def test_values_that_are_none_are_refused(
    key: str, value: Any, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved()
    header = read_mmproj(path).header
    changed = header._replace(fields=header.fields | {key: value})
    monkeypatch.setattr("draftwerk.pictures.mmproj.mmproj_file.read_gguf_header", lambda _: changed)
    with pytest.raises(Refused, match=key):
        read_mmproj(path)


def test_other_files_are_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"general\.architecture"):
        read_mmproj(text)
    (tmp_path / "mmproj.gguf").write_bytes(b"GGUF")
    with pytest.raises(Refused, match=r"mmproj\.gguf"):
        tower_file([str(text)], HIDDEN)
