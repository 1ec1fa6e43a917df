"""What single operations on the blocks of a text do; their interplay is in tables_world.py."""

import pytest

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockNamer

SIZE = 4
TEXT = list(range(100, 120))


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(8, SIZE)


def table(pool: BlockPool, space: str = "") -> SequenceMemory:
    return CachePools(pool).memory(BlockNamer(b"secret"), space)


def committed(pool: BlockPool, tokens: list[int], space: str = "") -> SequenceMemory:
    """Return a table over a text that is computed to its end."""
    full = table(pool, space)
    full.enter(tokens)
    assert full.reserve(len(tokens))
    full.commit(tokens, 0, len(tokens))
    return full


def test_the_last_token_is_never_found(pool: BlockPool) -> None:
    committed(pool, TEXT[:8])
    assert table(pool).enter(TEXT[:8]) == 4
    assert table(pool).enter(TEXT[:9]) == 8
    assert table(pool).enter(TEXT[:4]) == 0
    assert table(pool).enter([]) == 0


def test_no_prefix_is_found_across_name_spaces(pool: BlockPool) -> None:
    committed(pool, TEXT[:12], "mine")
    assert table(pool, "yours").enter(TEXT) == 0
    assert table(pool, "mine").enter(TEXT) == 12


def test_only_a_table_that_holds_nothing_can_match(pool: BlockPool) -> None:
    with pytest.raises(AssertionError, match="only an empty table"):
        committed(pool, TEXT[:4]).enter(TEXT)


def test_the_first_of_a_fork_to_write_copies_and_the_second_does_not(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:6])
    twin = one.fork()
    shared = one.table.blocks[1]
    assert twin.make_writable(6) == [(shared, twin.table.blocks[1])]
    assert twin.table.blocks[0] == one.table.blocks[0]
    assert twin.table.blocks[1] != shared
    assert one.make_writable(6) == []
    assert one.table.blocks[1] == shared


def test_a_truncated_block_is_found_until_it_is_overwritten(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:8])
    one.truncate(5)
    probe = table(pool)
    assert probe.enter(TEXT) == 8
    probe.leave()
    assert one.make_writable(5) == []
    assert table(pool).enter(TEXT) == 4


def test_release_gives_everything_back_once(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:10])
    one.leave()
    one.leave()
    assert (pool.used, pool.cached, pool.free) == (0, 2, 6)
    pool.check()


def test_check_finds_a_block_that_was_given_away(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:4])
    pool.drop(one.table.blocks)
    with pytest.raises(AssertionError, match="a block is not held"):
        one.check()


def test_check_finds_a_block_that_appears_twice(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:4])
    one.table.blocks *= 2
    with pytest.raises(AssertionError, match="twice"):
        one.check()
