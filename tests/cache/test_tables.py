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


def test_a_new_table_holds_nothing(pool: BlockPool) -> None:
    assert table(pool).slots == 0
    assert pool.used == 0


def test_reserving_takes_whole_blocks_and_never_gives_any_back(pool: BlockPool) -> None:
    one = table(pool)
    assert one.reserve(5)
    assert one.slots == 8
    assert one.reserve(1)
    assert one.slots == 8
    assert pool.used == 2


def test_a_reservation_that_does_not_fit_changes_nothing(pool: BlockPool) -> None:
    one = table(pool)
    one.reserve(4)
    assert not one.reserve(8 * SIZE + 1)
    assert one.slots == 4
    assert pool.used == 1
    assert one.reserve(8 * SIZE)


def test_a_second_text_finds_the_blocks_that_both_begin_with(pool: BlockPool) -> None:
    first = committed(pool, TEXT[:12])
    second = table(pool)
    assert second.enter([*TEXT[:8], 1, 2, 3, 4, 5]) == 8
    assert second.table.blocks == first.table.blocks[:2]
    assert [pool.holders(block) for block in first.table.blocks] == [2, 2, 1]


def test_the_last_token_is_never_found(pool: BlockPool) -> None:
    committed(pool, TEXT[:8])
    assert table(pool).enter(TEXT[:8]) == 4
    assert table(pool).enter(TEXT[:9]) == 8
    assert table(pool).enter(TEXT[:4]) == 0
    assert table(pool).enter([]) == 0


def test_a_prefix_is_found_after_its_text_has_left(pool: BlockPool) -> None:
    committed(pool, TEXT[:12]).leave()
    assert pool.used == 0
    assert table(pool).enter(TEXT) == 12


def test_no_prefix_is_found_across_name_spaces(pool: BlockPool) -> None:
    committed(pool, TEXT[:12], "mine")
    assert table(pool, "yours").enter(TEXT) == 0
    assert table(pool, "mine").enter(TEXT) == 12


def test_only_a_table_that_holds_nothing_can_match(pool: BlockPool) -> None:
    with pytest.raises(AssertionError, match="only an empty table"):
        committed(pool, TEXT[:4]).enter(TEXT)


@pytest.mark.parametrize("computed", range(9))
def test_a_block_is_found_only_when_all_its_slots_are_committed(
    pool: BlockPool, computed: int
) -> None:
    half = table(pool)
    half.reserve(8)
    half.commit(TEXT[:8], 0, computed)
    assert table(pool).enter(TEXT) == computed // SIZE * SIZE


def test_committing_bit_by_bit_names_what_committing_at_once_does(pool: BlockPool) -> None:
    slow = table(pool)
    slow.reserve(12)
    for computed in range(13):
        slow.commit(TEXT, 0, computed)
        slow.check()
    assert table(pool).enter(TEXT) == 12


def test_a_prefix_outlives_what_follows_it(pool: BlockPool) -> None:
    committed(pool, TEXT[:12]).leave()
    found = [12, 8, 4, 0]
    fresh = table(pool)
    for free, slots in zip((5, 6, 7, 8), found, strict=True):
        fresh.reserve(free * SIZE)
        probe = table(pool)
        assert probe.enter(TEXT) == slots
        probe.leave()


def test_a_fork_shares_every_block(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:6])
    twin = one.fork()
    assert twin.table.blocks == one.table.blocks
    assert twin.table.blocks is not one.table.blocks
    assert pool.used == 2
    one.leave()
    assert pool.used == 2
    twin.leave()
    assert pool.used == 0


def test_the_first_of_a_fork_to_write_copies_and_the_second_does_not(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:6])
    twin = one.fork()
    shared = one.table.blocks[1]
    assert twin.make_writable(6) == [(shared, twin.table.blocks[1])]
    assert twin.table.blocks[0] == one.table.blocks[0]
    assert twin.table.blocks[1] != shared
    assert one.make_writable(6) == []
    assert one.table.blocks[1] == shared


def test_writing_behind_the_shared_blocks_copies_nothing(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:8])
    twin = one.fork()
    twin.reserve(12)
    assert twin.make_writable(8) == []
    assert twin.table.blocks[:2] == one.table.blocks


def test_a_copy_that_does_not_fit_changes_nothing(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:8])
    twin = one.fork()
    pool.take(pool.available - 1)
    assert twin.make_writable(0) is None
    assert twin.table.blocks == one.table.blocks
    pool.check()
    assert len(twin.make_writable(4) or []) == 1


def test_forks_of_a_fork_each_get_their_own_copy(pool: BlockPool) -> None:
    tables = [committed(pool, TEXT[:3])]
    tables += [tables[0].fork() for _ in range(3)]
    copies = [one.make_writable(3) for one in tables]
    assert [len(made or []) for made in copies] == [1, 1, 1, 0]
    assert len({one.table.blocks[0] for one in tables}) == 4


def test_a_truncated_block_is_found_until_it_is_overwritten(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:8])
    one.truncate(5)
    probe = table(pool)
    assert probe.enter(TEXT) == 8
    probe.leave()
    assert one.make_writable(5) == []
    assert table(pool).enter(TEXT) == 4


def test_overwriting_a_truncated_block_leaves_its_other_holder_alone(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:8])
    probe = table(pool)
    probe.enter(TEXT)
    one.truncate(5)
    assert one.make_writable(5) == [(probe.table.blocks[1], one.table.blocks[1])]
    assert table(pool).enter(TEXT) == 8


def test_truncating_keeps_the_block_that_is_cut(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:12])
    one.truncate(5)
    assert one.slots == 8
    one.truncate(4)
    assert one.slots == 4
    one.truncate(4)
    assert one.slots == 4
    one.check()


def test_a_text_that_went_back_and_on_has_the_names_of_its_new_tokens(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:12])
    one.truncate(6)
    one.make_writable(6)
    other = [*TEXT[:6], 1, 2, 3, 4, 5, 6]
    one.reserve(12)
    one.commit(other, 0, 12)
    assert table(pool).enter([*other, 7]) == 12
    one.leave()
    assert table(pool).enter([*other, 7]) == 12
    assert table(pool).enter(TEXT) == 4


def test_release_gives_everything_back_once(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:10])
    one.leave()
    one.leave()
    assert (pool.used, pool.cached, pool.free) == (0, 2, 6)
    pool.check()


def test_a_released_table_may_start_again(pool: BlockPool) -> None:
    one = committed(pool, TEXT[:10])
    one.leave()
    assert one.enter(TEXT) == 8


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
