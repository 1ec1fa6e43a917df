"""The memory of a sequence: blocks, windows and states are taken and given back together."""

import pytest

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.recurrent_states import SequenceStates, StateRules
from draftwerk.cache.kinds.window_table import WindowGroup
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockNamer

SIZE = 4
TEXT = list(range(40))


def pools_of(blocks: int = 20, windows: int = 20, slots: int = 6) -> CachePools:
    """Return pools of a model that has all kinds of layers."""
    return CachePools(
        BlockPool(blocks, SIZE),
        (
            WindowGroup(BlockPool(windows, SIZE, first=blocks), 6, 8),
            StateRules(BlockPool(slots, 1), 2, SIZE, 2 * SIZE),
        ),
    )


def memory_of(pools: CachePools, prompt_count: int = 0) -> SequenceMemory:
    return pools.memory(BlockNamer(b"secret"), "", prompt_count)


def entered(pools: CachePools, tokens: list[int]) -> SequenceMemory:
    """Return the memory of a text that has entered, and has room for all of it."""
    memory = memory_of(pools, len(tokens))
    assert memory.enter(tokens) is not None and memory.reserve(len(tokens))
    return memory


def read(memory: SequenceMemory, tokens: list[int]) -> None:
    """Compute a text from its beginning in one row."""
    assert memory.reserve_row(len(tokens))
    assert memory.begin_row(0, len(tokens), len(tokens), 0) is not None
    memory.commit(tokens, 0, len(tokens))


def test_drafts_reach_as_far_as_each_pool_has_blocks() -> None:
    pools = pools_of(windows=2)
    memory = entered(pools, TEXT[:6])
    assert not memory.reserve_row(12), "the window has two blocks"
    assert memory.reserve_row(6) and memory.slots == 12
    row = memory.begin_row(0, 6, 6, draft_max=6)
    assert row is not None and row.draft_max == 2
    assert len(row.blocks) == len(row.options["window_blocks"]) == 2


def test_a_text_goes_on_behind_its_last_snapshot() -> None:
    pools = pools_of()
    memory = entered(pools, TEXT[:11])
    read(memory, TEXT[:11])
    memory.leave()
    again = memory_of(pools, 12)
    assert again.known(TEXT[:12]) == again.enter(TEXT[:12]) == again.slots == 8
    again.leave()
    assert [pool.used for pool in pools.all] == [0, 0, 0]


def test_without_a_slot_nothing_enters() -> None:
    pools = pools_of(slots=3)
    first = entered(pools, TEXT[:4])
    second = memory_of(pools)
    assert not pools.has_for(second, 1, 4), "one slot is left, and two are needed"
    assert second.enter(TEXT[:4]) is None
    second.leave()
    first.leave()
    assert pools.available() == (20, 20, 3) and pools.has_for(second, 20, 4)


def test_texts_enter_while_their_windows_find_blocks_later() -> None:
    pools = pools_of(windows=8)
    memories = [(entered(pools, TEXT[:8]), 8) for _ in range(3)]
    assert [memory.parts[0].later_count(tokens) for memory, tokens in memories] == [2, 2, 2]
    assert pools.has_later(memories) and pools.has_later([*memories, memories[0]])
    assert not pools.has_later([*memories, *memories])


@pytest.mark.parametrize("number", range(3), ids=["blocks", "windows", "states"])
def test_check_finds_what_leaked_in_each_pool(number: int) -> None:
    pools = pools_of()
    memory = entered(pools, TEXT[:8])
    read(memory, TEXT[:8])
    pools.check([memory])
    pool = pools.all[number]
    assert pool.take(1)
    with pytest.raises(AssertionError, match="leaked"):
        pools.check([memory])


def test_a_fork_shares_blocks_and_windows_and_has_no_states() -> None:
    pools = pools_of()
    memory = entered(pools, TEXT[:6])
    read(memory, TEXT[:6])
    fork = memory.fork()
    assert fork.part(SequenceStates) is None and memory.part(SequenceStates) is not None
    assert [each.blocks for each in fork.tables] == [each.blocks for each in memory.tables]
    copies = fork.make_writable(6)
    assert copies is not None and len(copies) == 2, "one block of each pool"
    pools.check([memory, fork])
    memory.leave()
    fork.leave()
    pools.check([])


def test_a_model_without_such_layers_has_blocks_alone() -> None:
    pools = CachePools(BlockPool(4, SIZE))
    memory = entered(pools, TEXT[:8])
    row = memory.begin_row(0, 8, 8, 0) if memory.reserve_row(8) else None
    assert row is not None and row.blocks and not row.options
    pool = pools.blocks
    assert pools.has({pool: 2}) and not pools.has({pool: 3}) and pools.available() == (2,)
    assert pools.chunk_max > 1e9 < pools.draft_max
