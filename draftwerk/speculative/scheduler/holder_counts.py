"""Who holds blocks and slots of states: each one's holders are the tables that name it."""

from collections import Counter
from collections.abc import Iterable

from draftwerk.cache.blocks import BlockPool
from draftwerk.speculative.requests.sequence import Sequence


def check_blocks(
    running: Iterable[Sequence], waiting: Iterable[Sequence], pools: Iterable[BlockPool]
) -> None:
    """Assert that running sequences agree with their tables, and those with the pools."""
    holders = Counter[int]()
    for sequence in running:
        assert sequence.computed <= len(sequence.tokens), "more KV than tokens"
        assert sequence.computed <= sequence.planned <= len(sequence.tokens)
        sequence.check()
        for table in sequence.tables():
            table.check()
            holders.update(block for part in table.parts() for block in part.held())
    assert not any(table.blocks for each in waiting for table in each.tables()), (
        "a waiting sequence holds blocks"
    )
    for pool in pools:
        pool.check()
        assert all(pool.holders(block) == holders[block] for block in pool.ids), "a block leaked"


def check_states(sequences: Iterable[Sequence], pool: BlockPool) -> None:
    """Assert that each slot is held by the sequences that name it."""
    pool.check()
    held = Counter(
        slot
        for sequence in sequences
        if sequence.states is not None
        for slot in sequence.states.held()
    )
    assert all(pool.holders(slot) == held[slot] for slot in range(pool.capacity)), "a state leaked"
