"""The root of a beam search: a sequence that branches once its prompt is read."""

from dataclasses import KW_ONLY, dataclass, fields

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import SequenceMemory
from draftwerk.speculative.beams.search import BeamSearch
from draftwerk.speculative.requests.sequence import Sequence


@dataclass(slots=True, eq=False)
class SearchRoot(Sequence):
    """What the scheduler queues, admits and preempts; the members of its search have the rows.

    They read the last token of its prompt.
    """

    _: KW_ONLY
    search: BeamSearch

    @property
    def unread(self) -> int:
        return self.pending - 1

    @property
    def has_output(self) -> bool:
        return self.generated > 0 or self.search.has_begun

    @property
    def row_count(self) -> int:
        return self.search.row_count

    @property
    def steps(self) -> int:
        return self.search.beams.length_max

    def memories(self) -> list[SequenceMemory]:
        return [*Sequence.memories(self), *self.search.memories()]

    def further_blocks(self, pool: BlockPool) -> int:
        return Sequence.further_blocks(self, pool) + self.search.tail_blocks(self)

    def leave(self) -> list[int]:
        return [*Sequence.leave(self), *self.search.leave(self)]

    def check(self) -> None:
        if not self.search.members:
            Sequence.check(self)
        elif self.blending is not None:  # its KV is in the members' tables
            self.blending.check()
        self.search.check()


def search_root(sequence: Sequence, search: BeamSearch) -> SearchRoot:
    """Return a sequence that has not begun as the root of a search."""
    begun_with = {each.name: getattr(sequence, each.name) for each in fields(sequence)}
    return SearchRoot(**begun_with, search=search)
