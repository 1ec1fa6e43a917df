"""A sequence that finds no room: its blocks are named once, however often it tries to enter, and it
enters with room for its segments."""

from collections.abc import Sequence as Tokens
from functools import partial

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.load.stats import SchedulerStats
from draftwerk.speculative.options.blend.blended_prompt import BlendedPrompt
from draftwerk.speculative.options.blend.blending import Blending, blended
from draftwerk.speculative.options.blend.rules import canonical_parts
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.running_set import RunningSet
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence

SIZE = 4


class CountingNamer(BlockNamer):
    """Counts the names that it makes."""

    count = 0

    def name(self, parent: bytes, tokens: Tokens[int], name_space: str) -> bytes:
        self.count += 1
        return super().name(parent, tokens, name_space)


def sequence_of(
    prompt: list[int], memory: SequenceMemory, number: int = 1, blending: Blending | None = None
) -> Sequence:
    text = Sequence(
        sequence_id=number,
        request=SequenceRequest(
            request_id=f"r{number}",
            choice=0,
            prompt_count=len(prompt),
            sampling=Sampling(),
            tokens_max=4,
            draft_max=0,
        ),
        tokens=prompt,
        memory=memory,
    )
    return text if blending is None else extended(text, BlendedPrompt, blending=blending)


def test_a_blocked_sequence_is_named_once() -> None:
    pool, namer = BlockPool(8, SIZE), CountingNamer(b"secret")
    prompt = list(range(24))
    first = CachePools(pool).memory(namer, "")
    assert first.reserve(16)
    first.commit(prompt, 0, 16)
    first.leave()  # four blocks stay cached

    pools = CachePools(pool)
    waiting = sequence_of(prompt, pools.memory(namer, ""))
    running_set = RunningSet(pools, SchedulerStats())
    held = pool.take(4)
    assert held is not None
    namer.count = 0
    assert not running_set.admit(waiting)
    assert namer.count == 5, "four that are cached, and the one behind them"
    pool.drop(held[:1])  # something has become free: too little
    assert not running_set.admit(waiting)
    assert namer.count == 5
    pool.drop(held[1:])
    assert running_set.admit(waiting)
    assert namer.count == 5 and waiting.computed == 16

    waiting.memory.commit(prompt, 16, 24)
    again = pools.memory(BlockNamer(b"secret"), "")
    assert again.enter([*prompt, 99]) == 24, "the names are those of its tokens"


def test_a_prompt_waits_until_its_largest_segment_has_room_beside_it() -> None:
    pool, namer = BlockPool(14, SIZE), BlockNamer(b"secret")
    pools = CachePools(pool)
    running_set = RunningSet(pools, SchedulerStats())
    assert running_set.admit(sequence_of([100] * 16, pools.memory(namer, "")))

    prompt, blend = list(range(24)), Blend(((4, 8), (8, 20)))
    parts = canonical_parts(blend, len(prompt), SIZE)
    assert [part.slots for part in parts] == [8, 16]
    memory = pools.memory(namer, "", salt=blended(blend, prompt, parts))
    blending = Blending(blend, parts, partial(pools.memory, namer, ""))
    entering = sequence_of(prompt, memory, 2, blending)
    held = pool.take(1)
    assert held is not None and pool.available == 9
    assert not running_set.admit(entering), "six blocks of its own, and four of a segment"
    assert not memory.block_count and pool.available == 9
    pool.drop(held)
    assert running_set.admit(entering)
