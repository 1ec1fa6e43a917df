"""Where blocks are in shared pages."""

import pytest

from draftwerk.cache.pages.page_layout import JOURNAL_BYTES, PageLayout, memory_bytes


def test_blocks_fill_the_planes_without_gap_or_overlap() -> None:
    layout = PageLayout(planes=4, block_count=5, unit_bytes=6)
    spans = sorted(span for block in range(5) for span in layout.spans(block))
    assert [start for start, _ in spans] == list(range(0, layout.page_bytes, 6))
    assert all(stop - start == 6 for start, stop in spans)
    assert layout.block_bytes == 24


def test_a_block_outside_the_pages_is_an_error() -> None:
    with pytest.raises(AssertionError):
        list(PageLayout(1, 5, 6).spans(5))


@pytest.mark.parametrize(("pages", "all_of_it"), [(1, 2), (4096, 2), (4097, 3)])
def test_the_journal_has_a_page_of_its_own(pages: int, all_of_it: int) -> None:
    assert memory_bytes(pages) == all_of_it * JOURNAL_BYTES


def test_blocks_of_layers_with_windows_lie_behind_all_others() -> None:
    layout = PageLayout(4, block_count=3, unit_bytes=64).with_window(
        6, block_count=2, unit_bytes=24
    )
    spans = sorted(span for block in range(5) for span in layout.spans(block))
    assert [start for start, _ in spans] == [*range(0, 768, 64), *range(768, 768 + 288, 24)]
    assert all(stop - start == (64 if start < 768 else 24) for start, stop in spans)
    assert layout.page_bytes == 4 * 3 * 64 + 6 * 2 * 24
    assert [len([*layout.spans(block)]) for block in range(5)] == [4, 4, 4, 6, 6]
    assert min(start for start, _ in layout.spans(3)) == 4 * 3 * 64
