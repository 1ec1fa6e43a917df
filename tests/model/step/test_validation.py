"""Blocks that a row names: those it reads in windows are held, and none is outside the pages."""

import pytest
import torch
from msgspec.structs import replace

from draftwerk.cache.kinds.window_table import WindowBlocks
from draftwerk.cache.tables import RELEASED
from draftwerk.model.batch.batch import Pages
from draftwerk.model.step.sequences import BadRow, CachedSequence
from draftwerk.model.step.validation import check_row
from draftwerk.speculative.rounds import NO_DRAFT, Row
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import make_row

SIZE, OTHERS, OWN = 4, 20, 12
TEXT = 40
READ = WindowBlocks(OWN, window=9, kept=1)


def pages() -> Pages:
    """Return pages of twenty blocks, and of twelve for layers with windows."""
    keys, own = torch.zeros(1, OTHERS, SIZE, 1, 1), torch.zeros(1, OWN, SIZE, 1, 1)
    return Pages(keys, keys, window=Pages(own, own), window_blocks=READ)


def held(*indexes: int) -> tuple[int, ...]:
    """Return a window table of the whole text that has some blocks."""
    return tuple(OTHERS + at if at in indexes else RELEASED for at in range(TEXT // SIZE))


def check(row: Row, sequence: CachedSequence) -> None:
    check_row(row, NO_DRAFT, sequence, pages(), vocab_size=9)


def text() -> CachedSequence:
    return CachedSequence([1] * TEXT, TEXT, Sampling())


LAST = make_row(TEXT - 1, TEXT, blocks=tuple(range(TEXT // SIZE)), window_blocks=held(0, 7, 8, 9))


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        (held(0, 7, 8, 9), ""),
        (held(0, 3, 7, 8, 9), ""),
        (held(7, 8, 9), "within the window is missing"),
        (held(0, 8, 9), "within the window is missing"),
        (held(0, 7, 9), "within the window is missing"),
        (held(0, 7, 8), "within the window is missing"),
        (held(0, 7, 8, 9)[:-1], "without blocks of its windows"),
        ((*held(0, 7, 8)[:-1], 3), "outside the pages of layers with windows"),
        ((*held(0, 7, 8)[:-1], OTHERS + OWN), "outside the pages of layers with windows"),
    ],
)
def test_a_row_has_every_block_of_its_windows(blocks: tuple[int, ...], reason: str) -> None:
    row = with_options(LAST, window_blocks=blocks)
    if not reason:
        check(row, text())
        return
    with pytest.raises(BadRow, match=reason):
        check(row, text())


@pytest.mark.parametrize("at", range(TEXT // SIZE))
def test_a_block_that_is_new_or_written_again_is_in_the_pages(at: int) -> None:
    blocks = (*LAST.blocks[:at], OTHERS, *LAST.blocks[at + 1 :])
    sequence = text()
    with pytest.raises(BadRow, match="outside the pages"):
        check(replace(LAST, blocks=blocks), sequence)
    check(LAST, sequence)
    assert sequence.checked_blocks == TEXT // SIZE
    if at == TEXT // SIZE - 1:
        with pytest.raises(BadRow, match="outside the pages"):
            check(replace(LAST, blocks=blocks), sequence)
