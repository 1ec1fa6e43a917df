"""A sequence that finds no room: its blocks are named once, however often it tries to enter."""

from collections.abc import Sequence as Tokens

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.requests.sequence_request import SequenceRequest
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.scheduler.stats import SchedulerStats

SIZE = 4


class CountingNamer(BlockNamer):
    """Counts the names that it makes."""

    count = 0

    def name(self, parent: bytes, tokens: Tokens[int], name_space: str) -> bytes:
        self.count += 1
        return super().name(parent, tokens, name_space)


def test_a_blocked_sequence_is_named_once() -> None:
    pool, namer = BlockPool(8, SIZE), CountingNamer(b"secret")
    prompt = list(range(24))
    first = BlockTable(pool, namer, "")
    assert first.reserve(16)
    first.commit(prompt, 16)
    first.release()  # four blocks stay cached

    waiting = Sequence(
        sequence_id=1,
        request=SequenceRequest(
            request_id="r",
            choice=0,
            prompt_count=len(prompt),
            sampling=Sampling(),
            tokens_max=4,
            draft_max=0,
        ),
        tokens=prompt,
        table=BlockTable(pool, namer, ""),
    )
    running_set = RunningSet(pool, SchedulerStats())
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

    waiting.table.commit(prompt, 24)
    again = BlockTable(pool, BlockNamer(b"secret"), "")
    assert again.match([*prompt, 99]) == 24, "the names are those of its tokens"
