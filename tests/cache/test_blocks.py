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


def test_taking_none_is_never_refused(pool: BlockPool) -> None:
    pool.take(4)
    assert pool.take(0) == []


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


def test_the_first_block_of_a_name_keeps_it(pool: BlockPool) -> None:
    first, second = pool.take(2) or []
    pool.name(first, b"name")
    pool.name(second, b"name")
    assert pool.find(b"name") == first
    pool.drop([first, second])
    assert counts(pool) == (3, 0, 1)


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
