"""Positions of texts whose pictures' rows have several: their time, line and column (M-RoPE).

    tokens      A  B   a picture's rows, 2 lines of 3    C  D
    positions   0  1   2 + (time, line, column)          5  6

What is behind a picture goes on behind its largest position. So a token is rotated by another place
than its keys have; which one follows from the prompt alone. A row's own are its last columns, one
for each pair of dimensions that turns.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.checkpoint.unsupported import Refused

Places = NDArray[np.float32]
"""Positions within a picture, of each row for each pair that turns [rows, pairs]."""
PictureOf = Callable[[int], tuple[NDArray[np.float32], int]]
"""Returns the rows of the picture that a placeholder is of, and the number of its own."""


class Stretch(NamedTuple):
    """Tokens from one on, up to the next stretch."""

    first: int
    base: int
    """Added to their places: those in the text, or in a picture those of its rows."""


def stretches(placeholders: Mapping[int, int], picture: PictureOf, width: int) -> list[Stretch]:
    """Return those of a text, by its placeholders in order; `width` is that of embeddings.

    None where rows have no positions of their own. Raises OSError for a picture that is gone.
    """
    found, shift, end = list[Stretch](), 0, -1
    for at, placeholder in placeholders.items():
        if at < end:
            continue
        rows, _ = picture(placeholder)
        pairs = rows.shape[1] % width
        if not pairs:
            return []
        end = at + len(rows)
        found.append(Stretch(at, at + shift))
        shift += int(rows[-1, -pairs:].max()) + 1 - len(rows)
        found.append(Stretch(end, shift))
    return found


def base_at(found: Sequence[Stretch], at: int) -> int:
    """Return what is added to the place of a token."""
    number = bisect_right(found, at, key=lambda each: each.first) - 1
    return found[number].base if number >= 0 else 0


def rotary_positions(
    positions: Tensor, bases: Tensor, rows: Sequence[int], places: Tensor
) -> Tensor:
    """Return positions where `bases` were added; some tokens are `rows`, with places [n, pairs]."""
    moved = positions + bases
    if not rows or not places.shape[1]:
        return moved
    every = moved[:, None].repeat(1, places.shape[1])
    every[list(rows)] = bases[list(rows), None] + places.int()
    return every


def in_grid(inputs: Mapping[str, Any], config: Any, takes_turns: bool) -> Places:
    """Return the places of a picture's rows, line by line.

    The axes have pairs in sections, or with `takes_turns` each pair in its turn.
    """
    grid = np.array(inputs["image_grid_thw"])[0]
    _, lines, columns = grid // config.vision_config.spatial_merge_size
    every = np.indices((1, lines, columns)).reshape(3, -1)
    return np.ascontiguousarray(every[axes(config.text_config, takes_turns)].T, np.float32)


def axes(text: Any, takes_turns: bool) -> NDArray[np.int64]:
    """Return the axis of each pair: 0 for time, 1 for lines, 2 for columns. Raises Refused."""
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sections = text.rope_parameters.get("mrope_section")
    if sections is None or len(sections) != 3 or sum(sections) != head_size // 2 or 0 in sections:
        raise Refused(f"mrope_section {sections!r} does not divide {head_size // 2} pairs")
    if not takes_turns:
        return np.repeat(np.arange(3), sections)
    found = np.zeros(head_size // 2, np.int64)
    for axis in (1, 2):
        found[axis : 3 * sections[axis] : 3] = axis
    return found
