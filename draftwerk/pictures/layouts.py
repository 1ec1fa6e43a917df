"""How each family lays a picture out among tokens: the text that its processor writes.

Image processors and models are Transformers' own; of its processors of text and pictures those that
import torchvision are not used, and this is what they add.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from draftwerk.pictures.positions import Places, in_grid

PictureInputs = Mapping[str, Any]
"""The values that an image processor returns of one picture."""


class PictureFamily(NamedTuple):
    """How a family has pictures."""

    layout: Callable[[PictureInputs, int, "PictureLayout"], str]
    """Returns the text for a picture of so many rows."""
    given: Callable[["PictureLayout"], dict[str, Any]] = lambda layout: {}
    """Returns what the image processor is given besides the picture: it goes before what the
    checkpoint says of it, as in Transformers' processors of text and pictures."""
    is_nested: bool = False
    """Whether it takes a list of pictures for each text."""
    places: Callable[[PictureInputs, Any], Places] | None = None
    """Returns its rows' positions, by its configuration; None where these are those of tokens."""
    is_mutual: bool = False
    """Whether the rows of a picture see each other, those behind too."""
    shown: str = ""
    """The token that its template shows a picture as, if not that in whose place rows stand."""


class PictureLayout(NamedTuple):
    """The part of a checkpoint's configuration that layouts read."""

    picture: str
    """The name of the token in whose place a row stands."""
    config: Any
    patch_size: int


def _in_a_row(inputs: PictureInputs, count: int, layout: PictureLayout) -> str:
    return layout.picture * count


def _merged_patch(layout: PictureLayout) -> int:
    return layout.patch_size * getattr(layout.config, "spatial_merge_size", 1)


def _in_lines(inputs: PictureInputs, count: int, layout: PictureLayout) -> str:
    """Return Pixtral's layout: a token behind each line of patches."""
    height, width = (int(size) // _merged_patch(layout) for size in inputs["image_sizes"][0])
    return "[IMG_BREAK]".join([layout.picture * width] * height) + "[IMG_END]"


def _in_tiles(inputs: PictureInputs, count: int, layout: PictureLayout) -> str:
    """Return Idefics 3's layout: tiles by line and column, then the whole picture."""
    lines, columns = (int(_first(inputs[name])) for name in ("rows", "cols"))
    rows = layout.picture * (count // (lines * columns + 1))
    around = "<fake_token_around_image>"
    tiles = "".join(
        "".join(f"{around}<row_{line}_col_{column}>{rows}" for column in range(1, columns + 1))
        + "\n"
        for line in range(1, lines + 1)
    )
    return f"{tiles}{chr(10) if lines else ''}{around}<global-img>{rows}{around}"


def _first(value: Any) -> Any:
    """Return the one number in nested lists."""
    while isinstance(value, Sequence):
        value = value[0]
    return value


def _between_names(inputs: PictureInputs, count: int, layout: PictureLayout) -> str:
    """Return InternVL's layout: all tiles between two tokens."""
    return f"<img>{layout.picture * count}</img>"


def _in_paragraphs(inputs: PictureInputs, count: int, layout: PictureLayout) -> str:
    """Return Gemma 3's layout: between two tokens, and these between empty lines."""
    return f"\n\n{BEGIN}{layout.picture * count}<end_of_image>\n\n"


BEGIN = "<start_of_image>"
IN_SECTIONS = PictureFamily(_in_a_row, places=partial(in_grid, takes_turns=False))
TILED = PictureFamily(_in_tiles, lambda _: {"return_row_col_info": True}, is_nested=True)
FAMILIES = {
    "LlavaForConditionalGeneration": PictureFamily(_in_a_row),
    "Mistral3ForConditionalGeneration": PictureFamily(
        _in_lines, lambda layout: {"patch_size": _merged_patch(layout)}
    ),
    "Idefics3ForConditionalGeneration": TILED,
    "SmolVLMForConditionalGeneration": TILED,
    "InternVLForConditionalGeneration": PictureFamily(
        _between_names, lambda _: {"crop_to_patches": True}
    ),
    "Gemma3ForConditionalGeneration": PictureFamily(
        _in_paragraphs, lambda _: {"do_pan_and_scan": False}, is_mutual=True, shown=BEGIN
    ),
    "Qwen2VLForConditionalGeneration": IN_SECTIONS,
    "Qwen2_5_VLForConditionalGeneration": IN_SECTIONS,
    "Qwen3VLForConditionalGeneration": PictureFamily(
        _in_a_row, places=partial(in_grid, takes_turns=True)
    ),
}
"""By the class of Transformers."""
