"""The pool's invariants, one at a time; their interplay is in test_machine.py."""

import pytest

from draftwerk.cache.blocks import BlockPool


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(4, 16)


def cache_block(pool: BlockPool, name: bytes) -> int:
    """Leave one named block behind without a holder."""
    blocks = pool.take(1)
    assert blocks is not None
    pool.name(blocks[0], name)
    pool.drop(blocks)
    return blocks[0]


def counts(pool: BlockPool) -> tuple[int, int, int]:
    pool.check()
    assert pool.available == pool.free + pool.cached
    return pool.free, pool.used, pool.cached


def test_every_block_is_free_at_first(pool: BlockPool) -> None:
    assert counts(pool) == (4, 0, 0)


@pytest.mark.parametrize(("slots", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_slots_fill_whole_blocks(pool: BlockPool, slots: int, blocks: int) -> None:
    assert pool.blocks_for(slots) == blocks


def test_taken_blocks_are_distinct_and_held_once(pool: BlockPool) -> None:
    blocks = pool.take(3)
    assert blocks is not None
    assert len(set(blocks)) == 3
    assert [pool.holders(block) for block in blocks] == [1, 1, 1]
    assert counts(pool) == (1, 3, 0)


def test_taking_more_than_there_is_takes_nothing(pool: BlockPool) -> None:
    cache_block(pool, b"kept")
    assert pool.take(5) is None
    assert counts(pool) == (3, 0, 1)
    assert pool.find(b"kept") is not None


def test_taking_none_is_never_refused(pool: BlockPool) -> None:
    pool.take(4)
    assert pool.take(0) == []


def test_a_block_is_shared_while_two_hold_it(pool: BlockPool) -> None:
    (block,) = pool.take(1) or []
    assert not pool.shared([block])
    pool.hold(block)
    assert pool.shared([block]) == [block]
    pool.drop([block])
    assert not pool.shared([block])
    assert counts(pool) == (3, 1, 0)


def test_a_dropped_block_is_free_without_a_name_and_cached_with_one(pool: BlockPool) -> None:
    named, unnamed = pool.take(2) or []
    pool.name(named, b"name")
    pool.drop([named, unnamed])
    assert counts(pool) == (3, 0, 1)
    assert pool.find(b"name") == named


def test_holding_revives_a_cached_block(pool: BlockPool) -> None:
    block = cache_block(pool, b"name")
    pool.hold(block)
    assert counts(pool) == (3, 1, 0)
    assert pool.find(b"name") == block
    pool.drop([block])
    assert counts(pool) == (3, 0, 1)


def test_free_blocks_are_taken_before_cached_ones(pool: BlockPool) -> None:
    cache_block(pool, b"name")
    pool.take(3)
    assert pool.find(b"name") is not None
    pool.take(1)
    assert pool.find(b"name") is None


def test_the_block_that_was_freed_last_is_taken_first(pool: BlockPool) -> None:
    first, second = pool.take(2) or []
    pool.drop([second])
    pool.drop([first])
    assert pool.take(2) == [first, second]


def test_the_least_recently_used_block_goes_first(pool: BlockPool) -> None:
    blocks = pool.take(4) or []
    for block, name in zip(blocks, (b"a", b"b", b"c", b"d"), strict=True):
        pool.name(block, name)
        pool.drop([block])
    pool.hold(blocks[0])
    pool.drop([blocks[0]])
    order: list[bytes] = []
    while pool.cached:
        before = {name for name in (b"a", b"b", b"c", b"d") if pool.find(name) is not None}
        pool.take(1)
        order += before - {name for name in before if pool.find(name) is not None}
        pool.check()
    assert order == [b"b", b"c", b"d", b"a"]


def test_a_taken_block_has_lost_its_old_name(pool: BlockPool) -> None:
    for name in (b"a", b"b", b"c", b"d"):
        block = cache_block(pool, name)
        assert pool.find(name) == block
    pool.take(4)
    assert [pool.find(name) for name in (b"a", b"b", b"c", b"d")] == [None] * 4


def test_the_first_block_of_a_name_keeps_it(pool: BlockPool) -> None:
    first, second = pool.take(2) or []
    pool.name(first, b"name")
    pool.name(second, b"name")
    assert pool.find(b"name") == first
    pool.drop([first, second])
    assert counts(pool) == (3, 0, 1)


def test_a_block_keeps_its_first_name(pool: BlockPool) -> None:
    (block,) = pool.take(1) or []
    pool.name(block, b"first")
    pool.name(block, b"second")
    assert pool.find(b"first") == block
    assert pool.find(b"second") is None
    pool.check()


def test_an_unnamed_block_cannot_be_found_and_may_be_named_anew(pool: BlockPool) -> None:
    (block,) = pool.take(1) or []
    pool.unname([block])
    pool.name(block, b"old")
    pool.unname([block])
    assert pool.find(b"old") is None
    pool.name(block, b"new")
    assert pool.find(b"new") == block
    pool.drop([block])
    assert counts(pool) == (3, 0, 1)


def test_check_finds_a_block_dropped_too_often(pool: BlockPool) -> None:
    blocks = pool.take(1) or []
    pool.drop(blocks)
    pool.drop(blocks)
    with pytest.raises(AssertionError, match="more often than held"):
        pool.check()


def test_check_finds_a_free_block_that_is_held(pool: BlockPool) -> None:
    pool.hold(0)
    with pytest.raises(AssertionError, match="must be every block"):
        pool.check()


def test_check_finds_a_free_block_with_a_name(pool: BlockPool) -> None:
    pool.name(0, b"name")
    with pytest.raises(AssertionError, match="a free block has a name"):
        pool.check()
