"""The order of eviction: properties over random lives of blocks, and what each rule is for."""

import random

import pytest

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.eviction.replacement import CostAware, Origin
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from tests.cache.least_recently_used import LeastRecentlyUsed

SIZE = 4

Order = CostAware | LeastRecentlyUsed


class Server:
    """Serves one request after another on a small pool; counts the tokens found in it."""

    def __init__(self, capacity: int, order: Order) -> None:
        self.pool = BlockPool(capacity, SIZE, order)
        self.namer = BlockNamer(b"key")

    def serve(self, tokens: list[int], space: str = "") -> int:
        memory = CachePools(self.pool).memory(self.namer, space)
        found = memory.enter(tokens)
        assert found is not None and memory.reserve(len(tokens))
        memory.make_writable(found)
        memory.commit(tokens, found, len(tokens))
        memory.leave()
        self.pool.check()
        return found


def prompt(number: int, blocks: int) -> list[int]:
    return [1000 * number + index for index in range(blocks * SIZE + 1)]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", [CostAware, LeastRecentlyUsed])
def test_every_block_is_evicted_once_and_nothing_is_lost(seed: int, kind: type[Order]) -> None:
    rng = random.Random(seed)
    order: Order = kind()
    cached: dict[int, bytes] = {}
    for step in range(600):
        action = rng.random()
        if action < 0.5:
            block = rng.randrange(50)
            if block not in cached:
                cached[block] = bytes([rng.randrange(60)])
                order.add(block, cached[block], Origin(rng.randrange(9), rng.choice("abc")))
        elif action < 0.7 and cached:
            block = rng.choice([*cached])
            order.reused(cached.pop(block), rng.choice("abc"))
            order.remove(block)
        elif cached:
            avoid = set(rng.sample([*cached], rng.randrange(len(cached) + 1)))
            block = order.evict(avoid)
            assert (block is None) == (len(avoid) == len(cached))
            if block is not None:
                assert block not in avoid
                del cached[block]
        assert set(order) == set(cached)
        assert len(order) == len(cached)
        assert all(block in order for block in cached)
        if step % 20 == 0:
            order.check()
    while cached:
        block = order.evict()
        assert block is not None
        del cached[block]
    assert order.evict() is None


@pytest.mark.parametrize("seed", range(10))
def test_a_block_never_outlives_the_one_before_it_in_its_sequence(seed: int) -> None:
    prefixes_outlive(seed)


def prefixes_outlive(seed: int) -> None:
    """A block is found only through its prefix: alone it would only take up room."""
    rng = random.Random(seed)
    server = Server(40, CostAware())
    served: list[list[int]] = []
    for _ in range(200):
        stem, leaf = rng.randrange(6), rng.randrange(12)
        served.append([*prompt(stem, 3)[:-1], *prompt(100 + leaf, rng.randint(1, 5))])
        server.serve(served[-1])
        earlier = rng.choice(served)
        memory = CachePools(server.pool).memory(server.namer, "")
        found = memory.enter(earlier) or 0
        memory.leave()
        names = [
            name for name in table_names(server, earlier) if server.pool.find(name) is not None
        ]
        assert found >= len(names) * SIZE


def table_names(server: Server, tokens: list[int]) -> list[bytes]:
    name, names = bytes(16), []
    for start in range(0, (len(tokens) - 1) // SIZE * SIZE, SIZE):
        name = server.namer.name(name, tokens[start : start + SIZE], "")
        names.append(name)
    return names


def test_scans_do_not_evict_what_is_reused() -> None:
    found: dict[type[Order], int] = {}
    for kind in (CostAware, LeastRecentlyUsed):
        server = Server(26, kind())
        hits = [0] * 60
        for turn in range(60):
            hits[turn] = server.serve(prompt(1, 8))
            for scan in range(5):
                server.serve(prompt(2 + 5 * turn + scan, 6))
        found[kind] = sum(hits[30:])
    assert found[LeastRecentlyUsed] == 0
    assert found[CostAware] >= 0.9 * 30 * 8 * SIZE


def test_what_was_popular_is_evicted_in_the_end() -> None:
    server = Server(20, CostAware())
    for _ in range(50):
        server.serve(prompt(1, 8))
    for number in range(2, 80):
        server.serve(prompt(number, 6))
    assert server.serve(prompt(1, 8)) == 0


def test_a_busy_tenant_leaves_a_quiet_one_its_floor() -> None:
    server = Server(20, CostAware())
    server.serve(prompt(1, 4), "quiet")
    for turn in range(40):
        for _ in range(3):
            server.serve(prompt(2 + turn % 3, 5), "busy")
    assert server.serve(prompt(1, 4), "quiet") == 4 * SIZE


def test_of_equals_the_dearer_to_compute_stays() -> None:
    order = CostAware(cost=lambda depth: 1.0 + depth)
    for block, (name, depth) in enumerate([(b"deep", 9), (b"shallow", 0)], 1):
        order.add(block, name, Origin(depth))
    assert [order.evict(), order.evict()] == [2, 1]


def test_names_that_come_back_after_their_eviction_count_as_reused() -> None:
    order = CostAware()
    for block in range(4):  # as many names are remembered as there were blocks
        order.add(block, bytes([block]), Origin())
    for _ in range(4):
        order.evict()
    for turn in range(200):
        for name in (b"popular", b"scan" + bytes([turn])):
            order.add(0, name, Origin())
            assert order.evict() == 0
    order.add(1, b"popular", Origin())
    order.add(2, b"another scan", Origin())
    assert order.evict() == 2
    order.check()


def test_where_all_is_reused_alike_the_order_is_least_recently_used() -> None:
    rng = random.Random(3)
    ours, plain = CostAware(cost=lambda depth: 1.0), LeastRecentlyUsed()
    for block in range(100):
        for order in (ours, plain):
            order.add(block, bytes([block]), Origin(3 * block))
    for block in rng.sample(range(100), 30):
        for order in (ours, plain):
            order.remove(block)
    assert [ours.evict() for _ in range(70)] == [plain.evict() for _ in range(70)]
