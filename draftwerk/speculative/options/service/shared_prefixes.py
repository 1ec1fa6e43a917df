"""Prompts that begin alike and come together: the first is read, the others find it cached.

A prompt waits while another that goes before it reads tokens that both begin with. It loses no
time: the other is read as early as the shortest of those that wait for it.
"""

from collections.abc import Collection

from draftwerk.cache.kinds.recurrent_states import SequenceStates
from draftwerk.speculative.load.tally import AwaitedPrefix
from draftwerk.speculative.options.extended_sequence import in_line
from draftwerk.speculative.sequence import Sequence

SHARED_MIN = 4
"""Blocks that are worth waiting for."""


def awaits_prefix(sequence: Sequence, running: Collection[Sequence]) -> bool:
    """Return whether blocks of a waiting sequence are being computed for one that runs."""
    # Recurrent layers go on from snapshots, and segments lie elsewhere in every prompt.
    if sequence.memory.part(SequenceStates) is not None or not in_line(sequence):
        return False
    if sequence.turn.awaited is None:
        sequence.turn.awaited = _found(sequence, running)
    if sequence.turn.awaited is None:
        return False
    reader, length = sequence.turn.awaited
    if reader.memory.block_count and reader.computed < length:
        return True
    sequence.turn.awaited = None
    return False


def _found(sequence: Sequence, running: Collection[Sequence]) -> AwaitedPrefix | None:
    """Return who computes the most of what it begins with, and how many tokens of it."""
    ahead = [
        other
        for other in running
        if len(other.tokens) - other.computed > 1
        and in_line(other)
        and other.queue_key <= sequence.queue_key
    ]
    if not ahead:
        return None
    size = sequence.memory.block_size
    known = sequence.memory.known(sequence.reusable) // size
    counts = [_common_blocks(sequence, other, known) for other in ahead]
    longest = max(counts)
    if longest < known + SHARED_MIN:
        return None
    return AwaitedPrefix(ahead[counts.index(longest)], longest * size)


def _common_blocks(sequence: Sequence, other: Sequence, known: int) -> int:
    """Return how many first blocks have the same names in both; at least those `known`."""
    low = known
    high = (min(len(sequence.reusable), len(other.tokens)) - 1) // sequence.memory.block_size
    while low < high:
        middle = (low + high + 1) // 2
        # A block's name tells all that is before it.
        if _name(sequence, middle) == _name(other, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _name(sequence: Sequence, count: int) -> bytes:
    return sequence.memory.name(sequence.tokens, count - 1)
