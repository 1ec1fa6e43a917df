"""Where the latest tokens stood before: hash chains over a text, as LZ77 compressors keep them.

A suffix automaton answers the same question for whole texts, at four times the time and five times
the memory per token. Drafts gain nothing by it: they need only the newest places that match. So the
places of each pair of tokens are chained, newest first, and a bounded number of them is looked at.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from operator import itemgetter

INDEX_MAX = 2048
"""Tokens of one text that are indexed in a round: under a millisecond; long prompts take more."""
POSITIONS_MAX = 16
"""Places of a pair that are looked at, newest first."""
LEVELS = (2, 3, 4, 8, 16)
"""A match's level is how many of these lengths it reaches, less one."""
PAD = LEVELS[-1]
assert PAD <= INDEX_MAX
GAP = -1
"""Stands before a text and between texts: no token, so no guess crosses it."""

Match = tuple[int, int]
"""The position after a place that matches, and the level of the match."""


class Occurrences:
    """A growing text and the places of its pairs of tokens.

    tokens   [GAP] * PAD, then the text; positions count from the first GAP
    """

    __slots__ = ("_before", "_latest", "append", "tokens")

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = [GAP] * PAD + list(tokens)
        self._before: list[int] = [0] * PAD
        """By place: the last place before it where the same pair stood; 0 is none."""
        self._latest: dict[int, int] = {}
        """By pair: the position after its last place."""
        self.append: Callable[[Sequence[int]], None] = self.tokens.extend
        """Adds tokens to the text, not yet to the index."""

    @property
    def indexed(self) -> int:
        """Return how many of `tokens` can be found; the rest wait for `index`."""
        return len(self._before)

    def index(self, count: int) -> None:
        """Index up to `count` more tokens; about 0.3 us each."""
        done = len(self._before)
        before, latest = self._before, self._latest
        previous = self.tokens[done - 1]
        for position, token in enumerate(islice(self.tokens, done, done + count), start=done + 1):
            pair = (previous << 32) + token  # and not "|": a GAP is -1
            before.append(latest.get(pair, 0))
            latest[pair] = position
            previous = token

    def matches(self, tail: list[int], inside: bool) -> list[Match]:
        """Return the newest places where the last two tokens of `tail` stood, newest first.

        `tail` holds PAD tokens. `inside` says that it is this text's own end, which is no match.
        """
        tokens, before = self.tokens, self._before
        position = before[-1] if inside else self._latest.get((tail[-2] << 32) + tail[-1], 0)
        third, fourth, eight = tail[-3], tail[-4], tail[-8:]
        found: list[Match] = []
        while position and len(found) < POSITIONS_MAX:
            if tokens[position - 3] != third:
                level = 0
            elif tokens[position - 4] != fourth:
                level = 1
            elif tokens[position - 8 : position] != eight:
                level = 2
            else:
                level = 4 if tokens[position - PAD : position] == tail else 3
            found.append((position, level))
            position = before[position - 1]
        return found

    def check(self) -> None:
        """Assert that every chain runs back through places of one pair."""
        for position in self._latest.values():
            pair = self.tokens[position - 2 : position]
            while position:
                assert self.tokens[position - 2 : position] == pair
                assert self._before[position - 1] < position
                position = self._before[position - 1]


class SequenceText:
    """One sequence's text, prompt and output, which its sources share."""

    __slots__ = ("_matches", "_matches_at", "occurrences")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.occurrences = Occurrences(tokens)
        self._matches: list[Match] = []
        self._matches_at = 0

    @property
    def tokens(self) -> list[int]:
        """Return the text behind its padding; not to be changed."""
        return self.occurrences.tokens

    @property
    def pending(self) -> int:
        """Return how many tokens wait to be indexed."""
        return len(self.tokens) - self.occurrences.indexed

    @property
    def length(self) -> int:
        return len(self.tokens) - PAD

    def tail(self) -> list[int]:
        """Return the last PAD tokens, padded in front."""
        return self.tokens[-PAD:]

    def matches(self) -> list[Match]:
        """Return where the text's end stood before; nothing while the index is behind."""
        size = len(self.tokens)
        if self._matches_at != size:
            self._matches_at = size
            self._matches = [] if self.pending else self.occurrences.matches(self.tail(), True)
        return self._matches

    def best_match(self) -> Match | None:
        """Return the longest match, and of equals the newest, which is the first; None without."""
        return max(self.matches(), key=itemgetter(1), default=None)
