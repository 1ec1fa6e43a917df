"""The window that a draft head that attends keeps of each sequence: the last tokens that it has
read.

    slot        0 ............ length | length ...............
    position    first ............... | waiting: not read yet

A token is read with the state before it, so a token of the target's prefix cache is not. What is
missing makes drafts worse; texts do not depend on it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    StateRow = tuple[Tensor, int]
    """States, and the row of one of them: a tensor of its own takes longer to make."""

CAPACITY = 128
"""Texts that are drafted for at once; of more the head drafts for these."""
BLOCK_SIZE = 16
BLOCKS = 33
"""The blocks of a window."""
LONG_CAPACITY, LONG_BLOCKS = 32, 129
"""The same of a drafter that reads whole prompts: as many slots, for fewer texts."""
WAITING_MAX = 128
"""Tokens that wait for the head; of more the last, and nothing is kept of those before."""
ROWS_SHARED = 16
"""The number of a step's states that stay as they are if some of them wait; of more those are
copied."""


@dataclass(slots=True)
class HeadWindow:
    """One sequence's."""

    first: int = 0
    """The position in slot 0."""
    length: int = 0
    """Tokens read."""
    blocks: tuple[int, ...] = ()
    """The blocks of the head's pages; none where nothing is read."""
    states: "list[StateRow]" = field(default_factory=list["StateRow"])
    """The states of tokens that wait: what the target's head reads there."""
    tokens: list[int] = field(default_factory=list[int])
    """After each of these."""

    @property
    def end(self) -> int:
        """The position of the next token to come."""
        return self.first + self.length + len(self.tokens)

    def slot(self, index: int) -> int:
        """Return where a token that was read is, in the pages' flattened (block, offset) axis."""
        block, offset = divmod(index, BLOCK_SIZE)
        return self.blocks[block] * BLOCK_SIZE + offset

    def restart(self, position: int) -> None:
        """Forget all that was read; what waits begins at a position."""
        self.first, self.length = position, 0

    def slide(self, room: int, slots: int) -> None:
        """Forget the first blocks, so that there is room for what waits and so many more."""
        while self.length + len(self.tokens) + room > slots:
            self.blocks = (*self.blocks[1:], self.blocks[0])
            self.first += BLOCK_SIZE
            self.length -= BLOCK_SIZE

    def take(self) -> "tuple[list[StateRow], list[int]]":
        """Return what waits, which is read now."""
        taken = self.states, self.tokens
        self.length += len(self.tokens)
        self.states, self.tokens = [], []
        return taken


class HeadWindows:
    """The windows of all sequences; the one that was used longest ago gives its blocks away."""

    def __init__(self, capacity: int, blocks: int = BLOCKS) -> None:
        """`capacity` windows have so many blocks each at once."""
        self.capacity, self.blocks = capacity, blocks
        self.read_now: Callable[[int], None] | None = None
        """Reads what waits of a sequence, where a prompt's states are not to be forgotten."""
        self.clear()

    @classmethod
    def of_head(cls, reads_prompts: bool) -> "HeadWindows":
        """Return those of a head that reads prompts whole, or their last tokens alone."""
        return cls(LONG_CAPACITY, LONG_BLOCKS) if reads_prompts else cls(CAPACITY)

    @property
    def block_count(self) -> int:
        """The blocks of all windows."""
        return self.capacity * self.blocks

    @property
    def prompt_max(self) -> int:
        """Tokens of a prompt that are read, its last ones."""
        slots = self.blocks * BLOCK_SIZE
        return WAITING_MAX if self.read_now is None else slots - WAITING_MAX - BLOCK_SIZE

    def clear(self) -> None:
        """Forget all."""
        self._windows: dict[int, HeadWindow] = {}
        self._free = list(range(self.capacity))
        self._used: dict[int, int] = {}

    def open(self, sequence_id: int) -> HeadWindow:
        """Begin a sequence of which nothing is known."""
        self.close((sequence_id,))
        window = self._windows[sequence_id] = HeadWindow()
        return window

    def close(self, sequence_ids: Iterable[int]) -> None:
        """Forget sequences, known or not."""
        for sequence_id in sequence_ids:
            self._windows.pop(sequence_id, None)
            if (place := self._used.pop(sequence_id, None)) is not None:
                self._free.append(place)

    def has_room(self, sequence_id: int) -> bool:
        """Whether a sequence is known, or another one may be."""
        return sequence_id in self._windows or len(self._windows) < self.capacity

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self._windows

    def follow(
        self, sequence_id: int, position: int, states: "Iterable[StateRow]", tokens: Sequence[int]
    ) -> None:
        """Take in states from a position on, and the token after each."""
        window = self._windows.get(sequence_id) or self.open(sequence_id)
        if window.end != position:
            window.states, window.tokens = [], []
            window.restart(position)
        window.states += states
        window.tokens += tokens
        surplus = len(window.tokens) - WAITING_MAX
        if surplus > 0 and self.read_now is not None:
            self.read_now(sequence_id)
        elif surplus > 0:
            window.restart(window.end - WAITING_MAX)
            del window.states[:surplus], window.tokens[:surplus]

    def use(self, sequence_id: int, room: int) -> HeadWindow:
        """Return a window with blocks for what waits and for `room` more tokens."""
        window = self._windows[sequence_id]
        if sequence_id not in self._used:
            place = self._free.pop() if self._free else self._taken_back()
            self._used[sequence_id] = place
            window.blocks = tuple(range(place * self.blocks, (place + 1) * self.blocks))
        self._used[sequence_id] = self._used.pop(sequence_id)  # the newest is last
        window.slide(room, self.blocks * BLOCK_SIZE)
        return window

    def _taken_back(self) -> int:
        oldest = next(iter(self._used))
        window = self._windows[oldest]
        window.restart(window.first + window.length)
        return self._used.pop(oldest)

    def check(self, known: Iterable[int] | None = None) -> None:
        """Assert that windows are within their blocks, and of `known` sequences alone."""
        assert known is None or self._windows.keys() <= set(known)
        assert self._used.keys() <= self._windows.keys()
        places = [*self._free, *self._used.values()]
        assert sorted(places) == list(range(self.capacity))
        for window in self._windows.values():
            assert len(window.states) == len(window.tokens) <= WAITING_MAX
            assert 0 <= window.length <= self.blocks * BLOCK_SIZE
