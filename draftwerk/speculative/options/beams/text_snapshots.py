"""Snapshots that a beam search makes of its texts, of a model with recurrent layers.

Each text that may come to be the reply has one, at the end of its last full block whose tokens were
read: a prompt that goes on from the reply finds it. What was drafted has no states, so it may lie a
draft's length before the reply's end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from draftwerk.cache.kinds.recurrent_states import RowState, SequenceStates
from draftwerk.speculative.options.beams.members import Member

Text = tuple[int, ...]
"""Generated tokens."""


@dataclass(slots=True)
class TextSnapshots:
    """The snapshots of one search."""

    _names: dict[Text, bytes] = field(default_factory=dict[Text, bytes])
    """By the tokens before them; empty names while their rows are under way."""

    def begin_row(
        self, states: SequenceStates, member: Member, stop: int, prompt_count: int
    ) -> tuple[tuple[int, int], ...]:
        """Return the (position, slot) that a member's row is to save, as far as `stop`.

        Of several members with the same tokens one does.
        """
        position = stop // states.rules.block_size * states.rules.block_size
        if position <= max(member.base, prompt_count - 1):
            return ()
        text = tuple(member.tokens[prompt_count:position])
        taken = None if text in self._names else states.rules.pool.take(1)
        if taken is None:
            return ()
        self._names[text] = b""
        return ((position, taken[0]),)

    def end_row(
        self, states: SequenceStates, member: Member, row: RowState, prompt_count: int
    ) -> None:
        """Take in that a member's row is answered, and its blocks are named."""
        for position, slot in row.saves:
            name = member.memory.names[position // states.rules.block_size - 1]
            states.name(slot, name, position)
            states.rules.pool.drop([slot])
            self._names[tuple(member.tokens[prompt_count:position])] = name

    def keep(self, states: SequenceStates, texts: Iterable[Text]) -> None:
        """Have the newest of each of these texts, and no others."""
        states.keep(self._names.values())  # those that are new as well
        kept: dict[Text, bytes] = {}
        for text in texts:
            begins = [each for each in self._names if text[: len(each)] == each]
            if begins:
                newest = max(begins, key=len)
                kept[newest] = self._names[newest]
        self._names = kept
        states.keep(kept.values())
