"""Positions of texts whose pictures' rows have several."""

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.pictures.positions import axes, base_at, in_grid, rotary_positions, stretches

WIDTH, PAIRS = 12, 4


def config(sections: Any, head_size: int = 8) -> Any:
    text = SimpleNamespace(head_dim=head_size, rope_parameters={"mrope_section": sections})
    return SimpleNamespace(text_config=text, vision_config=SimpleNamespace(spatial_merge_size=2))


def rows_of_grid(lines: int, columns: int) -> NDArray[np.float32]:
    grid = {"image_grid_thw": [[1, 2 * lines, 2 * columns]]}
    places = in_grid(grid, config([1, 1, 2]), takes_turns=False)
    return np.concatenate([np.zeros((lines * columns, WIDTH), np.float32), places], 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_text_goes_on_behind_the_largest_position_of_a_picture(seed: int) -> None:
    rng = Random(seed)
    grids = [(rng.randint(1, 4), rng.randint(1, 4)) for _ in range(3)]
    kept = [rows_of_grid(*grid) for grid in grids]
    placeholders, wanted, next_one, at = dict[int, int](), list[list[int]](), 0, 0
    for picture in rng.choices(range(3), k=4):  # the same one twice is two pictures
        for _ in range(rng.randint(0, 3)):
            wanted.append([next_one] * PAIRS)
            next_one, at = next_one + 1, at + 1
        lines, columns = grids[picture]
        for line in range(lines):
            for column in range(columns):
                placeholders[at], at = picture, at + 1
                wanted.append([next_one + each for each in (0, line, column, column)])
        next_one += max(lines, columns)
    wanted += [[next_one + each] * PAIRS for each in range(3)]
    found = stretches(placeholders, lambda placeholder: (kept[placeholder], 0), WIDTH)
    positions = torch.arange(len(wanted), dtype=torch.int32)
    bases = torch.tensor([base_at(found, each) for each in range(len(wanted))], dtype=torch.int32)
    positions[list(placeholders)] = 99  # of no interest in a picture
    order = [rows for at, rows in _rows(placeholders, kept)]
    places = torch.from_numpy(np.stack(order)[:, -PAIRS:])
    assert rotary_positions(positions, bases, [*placeholders], places).tolist() == wanted
    behind = slice(len(wanted) - 3, None)
    alone = rotary_positions(positions[behind], bases[behind], [], torch.empty(0, 0))
    assert alone.tolist() == [each[0] for each in wanted[behind]]


def _rows(placeholders: dict[int, int], kept: list[NDArray[np.float32]]) -> Any:
    """Yield each placeholder's row: pictures lie side by side, each from its beginning."""
    number, left = 0, 0
    for at, picture in placeholders.items():
        if not left:
            number, left = 0, len(kept[picture])
        yield at, kept[picture][number]
        number, left = number + 1, left - 1


def test_rows_without_positions_leave_a_text_as_it_is() -> None:
    assert stretches({3: 0, 4: 0}, lambda _: (np.zeros((2, 2 * WIDTH), np.float32), 0), WIDTH) == []
    assert base_at([], 7) == 0


def test_axes_lie_in_sections_or_take_turns() -> None:
    assert axes(config([1, 2, 1]).text_config, False).tolist() == [0, 1, 1, 2]
    text = config([4, 2, 2], 16).text_config
    assert axes(text, True).tolist() == [0, 1, 2, 0, 1, 2, 0, 0]


@pytest.mark.parametrize("sections", [None, [2, 2], [1, 1, 1], [0, 2, 2]])
def test_sections_that_do_not_divide_the_pairs_are_refused(sections: Any) -> None:
    with pytest.raises(Refused, match="mrope_section"):
        axes(config(sections).text_config, False)
