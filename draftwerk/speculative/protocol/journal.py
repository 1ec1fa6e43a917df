"""The move journal: how far a device came with the copies and moves of a round, in shared memory.

Everything else that a round writes it may write twice: a row's own slots, from its start on. A copy
or a move may not be done again, since the round goes on to write where it came from. So the device
notes when it begins and when it is done, in one word that outlives it.
"""

from enum import Enum

from draftwerk.cache.pages.page_layout import JOURNAL_BYTES
from draftwerk.speculative.rounds import Round


class Moves(Enum):
    """A round's block copies and slot moves, as a device left them."""

    TO_DO = 0
    HALF_DONE = 1
    """No one can tell which: the blocks that they name hold nothing of use."""
    DONE = 2


class MoveJournal:
    """One word: the newest round with copies or moves, and whether they are done."""

    def __init__(self, memory: memoryview | None = None) -> None:
        """`memory` is shared and ends with the journal; without it the word is private."""
        word = memoryview(bytearray(8)) if memory is None else memory[-JOURNAL_BYTES:][:8]
        self._word = word.cast("Q")

    def begin(self, round_: Round) -> None:
        """Note that the round's copies and moves are about to be made."""
        if has_moves(round_):
            self._word[0] = round_.round_id << 1

    def end(self, round_: Round) -> None:
        """Note that they are made."""
        if has_moves(round_):
            self._word[0] = round_.round_id << 1 | 1

    def state(self, round_: Round) -> Moves:
        """Return how far the device came with a round's copies and moves."""
        newest, is_done = self._word[0] >> 1, bool(self._word[0] & 1)
        if not has_moves(round_) or round_.round_id > newest:
            return Moves.TO_DO
        return Moves.DONE if round_.round_id < newest or is_done else Moves.HALF_DONE

    def close(self) -> None:
        """Let go of the memory; nothing is noted or told any more."""
        self._word.release()


def has_moves(round_: Round) -> bool:
    return bool(round_.copies or round_.moves)
