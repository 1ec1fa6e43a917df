"""Sequences extended by options: one option on top of another."""

from dataclasses import dataclass

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence


@dataclass(eq=False)
class Twice(Sequence):
    factor: int = 2

    @property
    def unread(self) -> int:
        return self.factor * super().unread


@dataclass(eq=False)
class OneMore(Sequence):
    @property
    def unread(self) -> int:
        return super().unread + 1


def test_each_option_extends_those_before_it() -> None:
    request = SequenceRequest(
        request_id="a", prompt_count=3, sampling=Sampling(), tokens_max=4, draft_max=0
    )
    memory = CachePools(BlockPool(4, 4)).memory(BlockNamer(b""), "")
    plain = Sequence(sequence_id=7, request=request, tokens=[1, 2, 3], memory=memory)
    assert extended(plain, OneMore).unread == 4
    both = extended(extended(plain, Twice, factor=3), OneMore)
    assert isinstance(both, Twice) and both.unread == 10
    assert extended(extended(plain, OneMore), Twice).unread == 8
    assert both.memory is memory and both.sequence_id == 7
