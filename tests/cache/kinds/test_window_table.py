"""Blocks of layers with windows: what is held, what is let go, behind what a text can go on."""

from itertools import product

import pytest

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.window_table import WindowGroup, WindowTable
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import RELEASED, BlockNamer

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


def memory_of(pool: BlockPool, group: WindowGroup | None) -> SequenceMemory:
    return CachePools(pool, () if group is None else (group,)).memory(BlockNamer(b""), "")


def table_of(memory: SequenceMemory) -> WindowTable:
    table = memory.part(WindowTable)
    assert table is not None
    return table


def one_text(
    group: WindowGroup, pool: BlockPool, tokens: list[int], chunk: int = 5
) -> SequenceMemory:
    """Return the memory of a text that was computed in chunks."""
    memory = memory_of(pool, group)
    computed = memory.enter(tokens)
    assert memory.reserve(len(tokens))
    while computed < len(tokens):
        stop = min(len(tokens), computed + chunk)
        assert memory.reserve_row(stop) and memory.make_writable(computed) is not None
        computed = stop
        memory.commit(tokens, 0, computed)
        memory.check()
    return memory


@pytest.mark.parametrize("window", [1, 4, 5, 17])
def test_a_long_text_holds_no_more_than_its_window_and_a_row(window: int) -> None:
    group, pool = group_of(window, row_max=5), BlockPool(60, SIZE)
    memory = one_text(group, pool, TEXT)
    held = table_of(memory)
    first = max(0, len(TEXT) - window + 1) // SIZE
    assert held.blocks[:first] == [RELEASED] * first
    assert len(held.held()) == len(TEXT) // SIZE - first
    assert memory.block_count == len(TEXT) // SIZE
    assert len(held.held()) <= group.blocks_of(len(TEXT))
    memory.leave()
    assert group.pool.used == pool.used == 0


def test_a_text_goes_on_at_any_block_while_all_are_cached() -> None:
    group, pool = group_of(6), BlockPool(60, SIZE)
    one_text(group, pool, TEXT).leave()
    for count in range(1, len(TEXT) // SIZE):
        memory = memory_of(pool, group)
        tokens = [*TEXT[: count * SIZE], 7]
        assert memory.known(tokens) == count * SIZE == memory.enter(tokens)
        memory.check()
        memory.leave()


def test_a_text_begins_anew_where_its_window_was_evicted() -> None:
    group, pool = group_of(6, count=8), BlockPool(60, SIZE)
    one_text(group, pool, TEXT[:20]).leave()
    others = group.pool.take(8)
    assert others is not None
    group.pool.drop(others)
    memory = memory_of(pool, group)
    assert memory.known(TEXT[:21]) == memory.enter(TEXT[:21]) == 0
    assert pool.cached == 5, "the other layers' blocks are still there"


def test_the_whole_of_a_row_fits_or_nothing_is_copied() -> None:
    group, pool = group_of(9, count=5), BlockPool(60, SIZE)
    memory = one_text(group, pool, TEXT[:10])
    fork = memory.fork()
    taken = group.pool.take(group.pool.available)
    before = list(fork.table.blocks), list(table_of(fork).blocks), pool.available
    assert fork.make_writable(9) is None
    assert before == (fork.table.blocks, table_of(fork).blocks, pool.available)
    group.pool.drop(taken or [])
    copies = fork.make_writable(9)
    assert copies is not None and [source >= 100 for source, _ in copies] == [False, True]


def test_a_row_is_told_both_tables() -> None:
    memory = one_text(group_of(5), BlockPool(60, SIZE), TEXT[:20])
    fields = memory.row_options(18)
    window_blocks = fields["window_blocks"]
    assert "blocks" not in fields
    assert window_blocks[:4] == (RELEASED,) * 4 and window_blocks[4] >= 100
    plain = memory_of(BlockPool(4, SIZE), None)
    assert plain.reserve_row(5) and "window_blocks" not in plain.row_options(5)


def test_a_text_without_an_end_keeps_its_beginning_and_its_window_alone() -> None:
    size = 16
    group = WindowGroup(BlockPool(4096 // size, size, first=9000), 1024, 1024, kept=128 // size)
    memory = memory_of(BlockPool(7000, size), group)
    held = table_of(memory)
    tokens, most = [*range(100_000)], 0
    for computed in range(500, len(tokens) + 1, 500):
        assert memory.reserve_row(computed) and memory.make_writable(computed - 500) is not None
        memory.commit(tokens, 0, computed)
        most = max(most, len(held.held()))
    memory.check()
    assert held.blocks[:8] == held.held()[:8], "the beginning is held"
    assert most <= group.blocks_of(len(tokens)) == 137
    twin = memory.fork()
    twin.check()
    memory.leave()
    twin.leave()
    assert group.pool.used == 0
