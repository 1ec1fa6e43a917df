"""What is loaded for a text: all of its head that is to be had, or up to a snapshot."""

from dataclasses import dataclass
from itertools import product

from draftwerk.actors.tier_two.missing_head import NOTHING, MissingHead, to_load

NAMES = [b"a", b"b", b"c", b"d"]


@dataclass
class Known:
    """Content by names: in the pool, or kept elsewhere."""

    in_pool: bytes = b""
    elsewhere: bytes = b""

    def holds(self, name: bytes) -> bool:
        return name in self.in_pool

    def keeps(self, name: bytes) -> bool:
        return name in self.elsewhere


def test_blocks_are_loaded_up_to_the_first_that_is_nowhere() -> None:
    assert to_load(NAMES, Known(b"a", b"bd"), None) == MissingHead((b"b",), (), 1)
    assert to_load(NAMES, Known(b"ac", b"bd"), None) == MissingHead((b"b", b"d"), (), 2)
    assert to_load(NAMES, Known(b"abcd"), None) == NOTHING


def test_with_recurrent_layers_they_are_loaded_up_to_a_snapshot() -> None:
    blocks = Known(b"a", b"bcd")
    assert to_load(NAMES, blocks, Known(b"", b"c")) == MissingHead((b"b", b"c"), (b"c",), 3)
    assert to_load(NAMES, blocks, Known(b"a", b"c")) == MissingHead((b"b", b"c"), (b"c",), 2)
    assert to_load(NAMES, blocks, Known(b"c")) == MissingHead((b"b", b"c"), (), 3)
    assert to_load(NAMES, blocks, Known()) == NOTHING
    assert to_load(NAMES, Known(b"abcd"), Known(b"b", b"d")) == MissingHead((), (b"d",), 2)
    assert to_load(NAMES, Known(b"abcd"), Known(b"bd", b"c")) == NOTHING


def test_what_is_loaded_makes_the_text_go_on_as_late_as_it_can() -> None:
    """Against every way to have four blocks and snapshots in the pool, elsewhere or nowhere."""
    places = [*product("pen", repeat=4)]
    for block_places, state_places in product(places, places):
        blocks, states = (known(each) for each in (block_places, state_places))
        load = to_load(NAMES, blocks, states)
        after_blocks = Known(blocks.in_pool + b"".join(load.blocks))
        after_states = Known(states.in_pool + b"".join(load.snapshots))
        assert set(load.blocks).isdisjoint(bytes([b]) for b in blocks.in_pool)
        all_blocks = Known(blocks.in_pool + blocks.elsewhere)
        all_states = Known(states.in_pool + states.elsewhere)
        assert reach(after_blocks, after_states) == reach(all_blocks, all_states)
        assert load.spared == reach(all_blocks, all_states) - reach(blocks, states)


def known(places: tuple[str, ...]) -> Known:
    held, kept = (
        b"".join(name for name, at in zip(NAMES, places, strict=True) if at == place)
        for place in "pe"
    )
    return Known(held, kept)


def reach(blocks: Known, states: Known) -> int:
    """Return where a text goes on: at the last snapshot among the blocks of its head."""
    found = 0
    for count, name in enumerate(NAMES, start=1):
        if not blocks.holds(name):
            break
        found = count if states.holds(name) else found
    return found
