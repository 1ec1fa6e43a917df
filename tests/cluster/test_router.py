"""The router's choice and its bookkeeping."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk_cluster.pools import Pools
from draftwerk_cluster.replica_load import Reservation, RoutingCosts
from draftwerk_cluster.router import Router, mixed

BLOCK = 16


def router_of(names: Iterable[str], doors: int = 1) -> Router:
    router = Router(BLOCK, RoutingCosts(), doors)
    for name in names:
        router.add(name)
    return router


def chosen(router: Router, keys: Iterable[int], tokens: int = 0, now: float = 0.0) -> Reservation:
    keys = tuple(keys)
    found = router.choose(keys, tokens or len(keys) * BLOCK, now)
    assert found is not None
    return found


def test_the_replica_that_has_the_prefix_is_chosen() -> None:
    router = router_of("abc")
    router.correct("b", 0, 0, 0, added=range(1, 9))
    found = chosen(router, range(1, 11))
    assert (found.replica_id, found.missing_tokens) == ("b", 2 * BLOCK)


def test_a_longer_queue_outweighs_a_prefix() -> None:
    router = router_of("ab")
    router.correct("b", 0, queued_tokens=9 * BLOCK, decode_rows=0, added=range(1, 9))
    assert chosen(router, range(1, 9)).replica_id == "a"


def test_a_prefix_that_can_be_fetched_outweighs_no_queue() -> None:
    for hands_over, replica in ((False, "b"), (True, "a")):
        router = router_of("ab")
        router.hands_over = hands_over
        router.correct("b", 0, queued_tokens=7 * BLOCK, decode_rows=0, added=range(1, 11))
        assert chosen(router, range(1, 11)).replica_id == replica


def test_decoding_rows_are_load() -> None:
    router = router_of("ab")
    router.correct("a", 0, queued_tokens=0, decode_rows=3)
    assert {chosen(router, [key]).replica_id for key in range(1, 4)} == {"b"}


def test_equal_costs_meet_by_their_first_block_in_every_door() -> None:
    first, second = router_of("abcd"), router_of("dcba")
    places = {key: chosen(first, [key]).replica_id for key in (5,)}
    assert places == {key: chosen(second, [key]).replica_id for key in (5,)}
    spread = {chosen(router_of("abcd"), [key]).replica_id for key in range(1, 60)}
    assert spread == set("abcd")


def test_a_new_replica_gets_its_share_and_no_more() -> None:
    router = router_of(map(str, range(8)))
    for name in map(str, range(8)):
        router.correct(name, 0, queued_tokens=400, decode_rows=4)
    router.add("new")
    places = [chosen(router, [100 * n, 100 * n + 1]).replica_id for n in range(1, 41)]
    # It takes what the others are ahead of it, and then its part.
    assert 0 < places.count("new") <= 12


def test_a_reservation_is_load_until_a_report_knows_it() -> None:
    router = router_of("a")
    first, second = chosen(router, [1]), chosen(router, [2])
    load = router.replicas["a"]
    assert load.pending_rows == 2
    router.correct("a", received=1, queued_tokens=BLOCK, decode_rows=0)
    assert (load.pending_rows, first.is_pending, second.is_pending) == (1, False, True)
    router.release(first)
    router.release(second)
    assert router.load_of(load) == BLOCK
    router.check()


def test_a_block_that_a_report_dropped_is_missing() -> None:
    router = router_of("ab")
    router.correct("a", 0, 0, 0, added=[1, 2, 3])
    router.correct("a", 0, 0, 0, dropped=[1])
    assert router.cached_tokens("a", [1, 2, 3]) == 0
    router.check()


def test_a_hot_prefix_gets_more_holders() -> None:
    router = router_of("abcd")
    prefix = list(range(1, 60))
    router.correct("a", 0, 0, 0, added=prefix)
    places: list[str] = []
    for number in range(200):
        found = chosen(router, [*prefix, 1000 + number], now=number * 0.01)
        places.append(found.replica_id)
        load = router.replicas[found.replica_id]
        # Each answers with rows that stay for a while.
        router.correct(found.replica_id, load.sent, 0, load.decode_rows + 1)
    assert max(map(places.count, "abcd")) <= 80, "one hot prefix overloads none"


def test_a_closed_or_excluded_replica_is_not_chosen() -> None:
    router = router_of("ab")
    router.close("a")
    assert chosen(router, [1]).replica_id == "b"
    assert router.choose([1], BLOCK, 0.0, excluded={"b"}) is None


def test_other_doors_are_expected_to_send_as_much() -> None:
    alone, one_of_four = router_of("a"), router_of("a", doors=4)
    for router in (alone, one_of_four):
        chosen(router, [1])
    assert one_of_four.load_of(one_of_four.replicas["a"]) == 4 * alone.load_of(alone.replicas["a"])


def test_doors_that_do_not_see_each_other_spread_what_goes_on_differently() -> None:
    def places(held: tuple[int, ...]) -> list[str]:
        """Return what as many doors choose for prompts with the same first block."""
        found: list[str] = []
        for number in range(1, 81):
            router = router_of("abcdefgh")
            for name in "abcdefgh":
                router.correct(name, 0, 0, 0, added=held)
            found.append(chosen(router, [1, mixed(number)]).replica_id)
        return found

    assert len(set(places(held=()))) == 1, "a block that nobody has is where all meet"
    spread = places(held=(1,))
    assert max(map(spread.count, "abcdefgh")) <= 20


def test_the_uses_of_a_hot_prefix_at_other_doors_count() -> None:
    def alone_until(doors: int) -> int:
        """Return how many requests the only holder gets before another is chosen."""
        router = router_of("ab", doors)
        prefix = list(range(1, 60))
        router.correct("a", 0, 0, 0, added=prefix)
        router.correct("a", 0, 0, decode_rows=1)
        for number in range(200):
            found = chosen(router, [*prefix, 1000 + number])
            router.correct(found.replica_id, router.replicas[found.replica_id].sent, 0, 1)
            if found.replica_id == "b":
                return number
        return 200

    assert alone_until(4) < alone_until(1) < 200


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_books_agree_after_anything(data: st.DataObject) -> None:
    router = router_of("ab")
    names = ["a", "b"]
    open_ones: list[Reservation] = []
    for number in range(data.draw(st.integers(1, 25))):
        key = st.integers(1, 12)
        match data.draw(st.sampled_from(["choose", "release", "correct", "lose", "add"])):
            case "choose":
                keys = data.draw(st.lists(key, max_size=5, unique=True))
                tokens = len(keys) * BLOCK + data.draw(st.integers(1, 15))
                found = router.choose(keys, tokens, float(number), data.draw(st.integers(1, 3)))
                assert (found is None) == (not names)
                open_ones += [] if found is None else [found]
            case "release" if open_ones:
                router.release(open_ones.pop(data.draw(st.integers(0, len(open_ones) - 1))))
            case "correct" if names:
                name = data.draw(st.sampled_from(names))
                received = data.draw(st.integers(0, router.replicas[name].sent))
                changed = data.draw(st.lists(key, max_size=4)), data.draw(st.lists(key, max_size=4))
                router.correct(name, received, 10.0, 1, *changed)
            case "lose" if names:
                router.remove(names.pop())
            case _:
                names.append(f"new{number}")
                router.add(names[-1])
        router.check()
    for each in open_ones:
        router.release(each)
    router.check()
    assert all(not each.expected and not each.pending for each in router.replicas.values())


def test_new_requests_go_to_the_pool_with_the_most_open_replicas() -> None:
    pools = Pools()
    assert pools.primary() == ""
    for name, pool in (("a", "old"), ("b", "old"), ("c", "new")):
        pools.add(pool, name, BLOCK)
    assert pools.primary() == "old"
    pools.routers["old"].close("a")
    pools.add("new", "d", BLOCK)
    assert pools.primary() == "new"
    for pool, name in (("old", "a"), ("old", "b")):
        pools.remove(pool, name)
    assert list(pools.routers) == ["new"]


@pytest.mark.parametrize("doors", [1, 3])
def test_pools_tell_their_routers_how_many_doors_there_are(doors: int) -> None:
    pools = Pools()
    pools.add("old", "a", BLOCK)
    pools.doors = doors
    pools.add("new", "b", BLOCK)
    assert {router.doors for router in pools.routers.values()} == {doors}
