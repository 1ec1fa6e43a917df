"""Blocks of layers with windows: what is held, what is let go, behind what a text can go on."""

from itertools import product

import pytest

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.held_blocks import RELEASED
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.tables import BlockTable
from draftwerk.cache.window_table import WindowGroup

SIZE = 4
NAMES = [bytes([number]) for number in range(6)]
TEXT = list(range(100))


def group_of(window: int, count: int = 40, row_max: int = 8, kept: int = 0) -> WindowGroup:
    return WindowGroup(BlockPool(count, SIZE, first=100), window, row_max, kept)


def know(group: WindowGroup, known: tuple[bool, ...]) -> None:
    """Have some blocks of a text in the pool."""
    for name, is_known in zip(NAMES, known, strict=True):
        if is_known:
            group.pool.name(group.pool.take(1)[0], name)  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize(("window", "kept"), [*product(range(1, 14), (0, 1, 2))])
def test_a_hit_is_the_longest_whose_window_is_there_whatever_is_known(
    window: int, kept: int
) -> None:
    for known in product((False, True), repeat=len(NAMES)):
        group = group_of(window, kept=kept)
        know(group, known)
        hits = [
            count
            for count in range(1, len(NAMES) + 1)
            if all(
                known[slot // SIZE]
                for slot in (
                    *range(min(kept, count) * SIZE),
                    *range(count * SIZE - window + 1, count * SIZE),
                )
                if slot >= 0
            )
        ]
        assert group.longest_hit(NAMES) == max(hits, default=0)


def one_text(group: WindowGroup, pool: BlockPool, tokens: list[int], chunk: int = 5) -> BlockTable:
    """Return a table of a text that was computed in chunks."""
    table = BlockTable(pool, BlockNamer(b""), "", group=group)
    computed = table.match(tokens)
    assert table.reserve(len(tokens))
    while computed < len(tokens):
        stop = min(len(tokens), computed + chunk)
        assert table.reserve_row(stop) and table.own(computed) is not None
        computed = stop
        table.commit(tokens, computed)
        table.check()
    return table


@pytest.mark.parametrize("window", [1, 4, 5, 17])
def test_a_long_text_holds_no_more_than_its_window_and_a_row(window: int) -> None:
    group, pool = group_of(window, row_max=5), BlockPool(60, SIZE)
    table = one_text(group, pool, TEXT)
    assert table.window is not None
    first = max(0, len(TEXT) - window + 1) // SIZE
    assert table.window.blocks[:first] == [RELEASED] * first
    assert len(table.window.held()) == len(TEXT) // SIZE - first
    assert len(table.blocks) == len(TEXT) // SIZE
    assert len(table.window.held()) <= group.blocks_of(len(TEXT))
    table.release()
    assert group.pool.used == pool.used == 0


def test_a_text_goes_on_at_any_block_while_all_are_cached() -> None:
    group, pool = group_of(6), BlockPool(60, SIZE)
    one_text(group, pool, TEXT).release()
    for count in range(1, len(TEXT) // SIZE):
        table = BlockTable(pool, BlockNamer(b""), "", group=group)
        tokens = [*TEXT[: count * SIZE], 7]
        assert table.known_slots(tokens) == count * SIZE == table.match(tokens)
        table.check()
        table.release()


def test_a_text_begins_anew_where_its_window_was_evicted() -> None:
    group, pool = group_of(6, count=8), BlockPool(60, SIZE)
    one_text(group, pool, TEXT[:20]).release()
    others = group.pool.take(8)
    assert others is not None
    group.pool.drop(others)
    table = BlockTable(pool, BlockNamer(b""), "", group=group)
    assert table.known_slots(TEXT[:21]) == table.match(TEXT[:21]) == 0
    assert pool.cached == 5, "the other layers' blocks are still there"


def test_the_whole_of_a_row_fits_or_nothing_is_copied() -> None:
    group, pool = group_of(9, count=5), BlockPool(60, SIZE)
    table = one_text(group, pool, TEXT[:10])
    fork = table.fork()
    assert fork.window is not None
    taken = group.pool.take(group.pool.available)
    before = list(fork.blocks), list(fork.window.blocks), pool.available
    assert fork.own(9) is None
    assert before == (fork.blocks, fork.window.blocks, pool.available)
    group.pool.drop(taken or [])
    copies = fork.own(9)
    assert copies is not None and [source >= 100 for source, _ in copies] == [False, True]


def test_a_row_is_told_both_tables() -> None:
    table = one_text(group_of(5), BlockPool(60, SIZE), TEXT[:20])
    told = table.row_blocks(18)
    assert told["blocks"] == tuple(table.blocks)
    assert told["window_blocks"][:4] == (RELEASED,) * 4 and told["window_blocks"][4] >= 100
    plain = BlockTable(BlockPool(4, SIZE), BlockNamer(b""), "")
    assert plain.reserve_row(5) and plain.row_blocks(5)["window_blocks"] == ()


def test_a_text_without_an_end_keeps_its_beginning_and_its_window_alone() -> None:
    size = 16
    group = WindowGroup(BlockPool(4096 // size, size, first=9000), 1024, 1024, kept=128 // size)
    table = BlockTable(BlockPool(7000, size), BlockNamer(b""), "", group=group)
    assert table.window is not None
    tokens, most = [*range(100_000)], 0
    for computed in range(500, len(tokens) + 1, 500):
        assert table.reserve_row(computed) and table.own(computed - 500) is not None
        table.commit(tokens, computed)
        most = max(most, len(table.window.held()))
    table.check()
    assert table.window.blocks[:8] == table.window.held()[:8], "the beginning is held"
    assert most <= group.blocks_of(len(tokens)) == 137
    twin = table.fork()
    twin.check()
    table.release()
    twin.release()
    assert group.pool.used == 0
