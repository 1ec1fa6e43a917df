"""Members of a beam search: one live hypothesis each, where its KV is, and what its rows are."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.recurrent_states import SequenceStates
from draftwerk.cache.memory import SequenceMemory
from draftwerk.cache.tables import BlockCopy
from draftwerk.speculative.options.beams.decisions import Candidate, Hypothesis
from draftwerk.speculative.rounds import NewSequence, Row
from draftwerk.speculative.sequence import Sequence as RequestSequence

Slot = int
"""block * block_size + offset."""


@dataclass(slots=True, eq=False)
class Member:
    """One live hypothesis in the pages.

    tokens   0 ............... base ........... computed ........... len(tokens)
             | KV in the pages  | KV in `path`,   |  to be computed   |
                                  nodes behind base
    """

    sequence_id: int
    tokens: list[int]
    memory: SequenceMemory
    base: int
    sent_count: int
    """Tokens sent to the devices, once they have copied the origin; 0 needs a Opening."""
    origin: int = 0
    """The sequence to copy; 0 once the devices hold this one."""
    path: tuple[int, ...] = ()
    known: tuple[Candidate, ...] = ()
    """The candidates after the last token, if that was a drafted node; then nothing is pending."""
    state: int | None = None
    """The slot of its recurrent state at base, of a model with recurrent layers: what is drafted
    has none, so `path` is empty, and its tokens are read again."""
    head_candidates: tuple[Candidate, ...] = ()
    """The draft head's candidates there, if the target's are not known."""

    @property
    def is_open(self) -> bool:
        """Whether the devices hold state for it."""
        return self.sent_count > 0 and not self.origin

    @property
    def computed(self) -> int:
        return self.base + len(self.path)

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.computed

    def moves(self, block_size: int) -> list[tuple[Slot, Slot]]:
        """Return the moves that put the path's KV right behind `base`."""

        def slot(blocks: list[int], index: int) -> Slot:
            return blocks[index // block_size] * block_size + index % block_size

        return [
            (slot(part.blocks, self.base + node), slot(part.blocks, self.base + index))
            for part in self.memory.tables
            for index, node in enumerate(self.path)
            if node != index
        ]


class Want(NamedTuple):
    """A row to be: `member` up to `stop`, with room for `drafts` nodes."""

    member: Member
    stop: int
    drafts: int


@dataclass(slots=True)
class GroupRows:
    """A search's part of a round."""

    rows: list[Row] = field(default_factory=list[Row])
    copies: list[BlockCopy] = field(default_factory=list[BlockCopy])
    moves: list[tuple[Slot, Slot]] = field(default_factory=list[tuple[Slot, Slot]])


def forked(
    root: RequestSequence, live: Sequence[Hypothesis], new_id: Callable[[], int]
) -> list[Member]:
    """Return a member for every live hypothesis, branching off the root that has read its text."""
    prompt = root.tokens[: root.request.prompt_count]
    states = root.memory.part(SequenceStates)
    return [
        Member(
            new_id(),
            [*prompt, *each.tokens],
            root.memory.fork(),
            root.computed,
            root.sent_count,
            root.sequence_id if root.sent_count else 0,
            state=None if states is None else states.latest,
        )
        for each in live
    ]


def with_tokens(new_sequence: NewSequence, tokens: list[int]) -> NewSequence:
    """Return the new-sequence data of another text of the same request."""
    return msgspec.structs.replace(new_sequence, tokens=tuple(tokens))


def catching_up(members: list[Member], tokens_left: int) -> list[Want]:
    """Return rows that leave each member one token short of its end, or as short as they can."""
    wants: list[Want] = []
    for member in members:
        count = min(member.pending - 1, tokens_left)
        if count < 1:
            continue
        tokens_left -= count
        wants.append(Want(member, member.computed + count, 0))
    return wants


def blocks_needed(wants: Sequence[Want]) -> dict[BlockPool, int]:
    """Return how many blocks the rows take from each pool, copies included."""
    fresh = Counter[BlockPool]()
    written: dict[BlockPool, Counter[int]] = {}
    for member, stop, drafts in wants:
        for held in member.memory.tables:
            fresh[held.pool] += max(0, held.pool.blocks_for(stop + drafts) - len(held.blocks))
            counts = written.setdefault(held.pool, Counter())
            counts.update(held.blocks[member.base // held.block_size :])
    for pool, counts in written.items():
        shared = (min(count, pool.holders(block) - 1) for block, count in counts.items())
        fresh[pool] += sum(shared)
    return fresh
