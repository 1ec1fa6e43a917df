"""How memory is divided between layers with windows and the others."""

import pytest
from msgspec.structs import replace

from draftwerk.assembly.window_split import GroupSizes, split
from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS

KIB = 1024
GEMMA_3_4B = GroupSizes(
    together_bytes=16 * 34 * 4 * KIB,
    shared_bytes=16 * 5 * 4 * KIB,
    window_bytes=16 * 29 * 4 * KIB,
    window=1024,
    context_max=131072,
    block_size=16,
)
"""29 of 34 layers have windows; 4 KiB a token and layer: 4 heads of 256, keys and values, bf16."""
MEMORY = 4 * 2**30


def test_a_pool_holds_almost_three_times_the_tokens_where_most_layers_have_windows() -> None:
    count, windows = split(MEMORY, GEMMA_3_4B)
    before = MEMORY // GEMMA_3_4B.together_bytes
    assert 2.7 * before < count < 2.8 * before
    assert count // 4 <= windows.count <= count // 4 + 1 and windows.window == 1024
    taken = count * GEMMA_3_4B.shared_bytes + windows.count * GEMMA_3_4B.window_bytes
    assert MEMORY - GEMMA_3_4B.window_bytes < taken <= MEMORY


def test_where_all_layers_have_windows_it_holds_four_times_the_tokens() -> None:
    sizes = replace(GEMMA_3_4B, shared_bytes=0)
    count, windows = split(MEMORY, sizes)
    assert count == 4 * MEMORY // sizes.window_bytes
    assert windows.count == MEMORY // sizes.window_bytes


@pytest.mark.parametrize(
    "change",
    [{"window_bytes": 0}, {"context_max": 1024}, {"window": 131072}],
    ids=["no windows", "short contexts", "a window as long as the context"],
)
def test_layers_share_their_blocks_where_nothing_is_won(change: dict[str, int]) -> None:
    sizes = replace(GEMMA_3_4B, **change)
    assert split(MEMORY, sizes) == (MEMORY // sizes.together_bytes, NO_WINDOW_BLOCKS)


def test_layers_share_their_blocks_where_two_windows_do_not_fit() -> None:
    memory = 2 * GEMMA_3_4B.held * GEMMA_3_4B.window_bytes
    assert split(memory, GEMMA_3_4B)[1] == NO_WINDOW_BLOCKS


def test_no_window_is_shorter_than_a_block_and_a_token() -> None:
    _, windows = split(MEMORY, replace(GEMMA_3_4B, window=1))
    assert windows.window == 17


def test_a_text_without_an_end_has_a_window_in_a_small_pool() -> None:
    sizes = GroupSizes(100, 0, 100, 1024, 2**20, 16, kept=128)
    count, windows = split(100 * 4096 // 16, sizes)
    assert (windows.count, windows.kept, windows.window) == (256, 8, 1024)
    assert count * 16 == 2**20, "blocks that take nothing"
