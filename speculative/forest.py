"""Drafts for beam searches: one forest over all branches of a group, grown by a guessed search.

The branches of a beam say nearly the same, a few tokens apart, so what the target offered after a
few tokens is the best guess of what it will offer after the same few tokens elsewhere in the group.
The forest is what a beam search over those guesses would visit, level by level. A level that missed
a survivor is not lost: after the others the target has then spoken, and only the next round's
guesses after the missing ones are guesses.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate
from math import exp, log
from typing import NamedTuple

from speculative.rounds import NO_DRAFT, Branch, Draft, Round, Row, Seen

ORDERS = 5
"""Tokens that a guess may look back."""
SOURCE = "beams"
SPARE = 1
"""A level's nodes beyond the beam's width: more cost more than the steps that they save."""
DEPTH_MAX = 8
WEIGHTS = (0.12, 0.35, 1.0, 2.0, 3.0)
"""What is known after one token, two tokens and so on, in a mixture."""
COPY_WEIGHTS = {2: 0.8, 3: 3.0}
"""What followed two and three tokens in the prompt, as a multiple of the rest."""
COPY_BESIDE = 0.05
"""The same where the target itself has spoken after three or more."""
UNKNOWN = 0.2
"""The rest's weight at least."""
OFFERS_MAX = 8
"""Tokens in a guess."""
SURE = (0.2, 0.4, 0.5, 0.7, 0.8, 0.9, 1.0)
"""How good a guess is, about, by the tokens looked back; one more if the prompt agrees."""
KNOWN = 6
"""Where the target has spoken already, nothing is guessed."""
GRADES = 10
"""Levels are filed by how good their guesses are."""
COVERED_START = 0.5
PACE = 0.06
"""Weight of the newest level in the chance that one like it holds all that its step needs."""
WORTH = 1.01
"""How much better than no forest the round must promise to be: all this is estimates."""

Offers = tuple[tuple[int, float], ...]
Tail = tuple[int, ...]


class Guess(NamedTuple):
    """What may follow some tokens."""

    offers: Offers
    sureness: int
    """An index of SURE."""


class _Tip(NamedTuple):
    """A path of the forest that may grow."""

    score: float
    row: int
    node: int
    tail: Tail
    known: Offers = ()
    """What will be offered after it, where that was seen already."""


class _Level(NamedTuple):
    """The nodes of one depth, and how good the guesses behind them are."""

    tips: list[_Tip]
    grade: int


@dataclass(slots=True)
class Group:
    """What is remembered of one search."""

    copied: dict[Tail, int]
    """What followed two and three tokens in the prompt, the last time."""
    seen: dict[Tail, Offers] = field(default_factory=dict[Tail, Offers])
    levels: list[int] = field(default_factory=list[int])
    """The grade of each level of the last forest."""

    def learn(self, seen: Iterable[Seen]) -> None:
        """Take in what the target offered after which tokens."""
        for tail, offers in seen:
            for order in range(1, len(tail) + 1):
                self.seen[tail[-order:]] = offers

    def guess(self, tail: Tail) -> Guess | None:
        """Return what may follow, mixed from all that is known of the tail's ends."""
        masses: dict[int, float] = {}
        total, known = 0.0, 0
        for order, weight in enumerate(WEIGHTS, start=1):
            offers = self.seen.get(tail[-order:])
            if offers is not None:
                total, known = total + weight, order
                for token, logprob in offers:
                    masses[token] = masses.get(token, 0.0) + weight * exp(logprob)
        copied, weight = self._copy(tail, known)
        if copied >= 0:
            weight *= max(total, UNKNOWN)
            masses[copied] = masses.get(copied, 0.0) + weight
            total += weight
        if not masses:
            return None
        best = nlargest(OFFERS_MAX, masses.items(), key=lambda item: item[1])
        found = tuple((token, log(mass / total)) for token, mass in best)
        return Guess(found, min(KNOWN - 1, known + (copied == best[0][0])))

    def _copy(self, tail: Tail, known: int) -> tuple[int, float]:
        """Return the token that the prompt has here, or -1, and its weight beside what is known."""
        for order in (3, 2):
            copied = self.copied.get(tail[-order:])
            if copied is not None:
                return copied, COPY_BESIDE if known >= 3 else COPY_WEIGHTS[order]
        return -1, 0.0


class Forests:
    """Every live search's memory, and how often a level came true."""

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._tails: dict[int, Tail] = {}
        self._covered = [COVERED_START] * (GRADES + 1)

    @property
    def size(self) -> int:
        """Return how many searches and branches are remembered."""
        return len(self._groups) + len(self._tails)

    def read(self, round_: Round, prompt: Callable[[int], Sequence[int]]) -> None:
        """Take in a round's branches and endings; `prompt` returns the tokens of a group's root."""
        branches = [(row, row.branch) for row in round_.rows if row.branch is not None]
        copied = [self._tails.get(branch.origin or row.sequence_id) for row, branch in branches]
        for sequence_id in round_.closed:  # a search may come back in the round that closes it
            self._groups.pop(sequence_id, None)
            self._tails.pop(sequence_id, None)
        for (row, branch), tail in zip(branches, copied, strict=True):
            opening = row.opening
            if branch.group_id not in self._groups:
                tokens = opening.tokens if opening else prompt(branch.group_id)
                self._groups[branch.group_id] = Group(_followers(tokens))
            if opening or tail is None:
                tail = tuple((opening.tokens if opening else prompt(branch.group_id))[-ORDERS:])
            self._tails[row.sequence_id] = (*tail, *row.news)[-ORDERS:]
            if branch.seen:
                self._learn(self._groups[branch.group_id], row, branch)

    def _learn(self, group: Group, row: Row, branch: Branch) -> None:
        """Take in what a group was offered, and how deep its last forest was right."""
        group.learn(branch.seen)
        came_true = len(row.news) - 1
        for depth, grade in enumerate(group.levels[: came_true + 1]):
            hit = depth < came_true
            self._covered[grade] += PACE * (hit - self._covered[grade])
        group.levels = []

    def propose(self, rows: Sequence[Row], load: int, costs: Sequence[float]) -> list[Draft]:
        """Return a draft for each row of one group, all of them sampling.

        `load` counts the round's tokens before anything is drafted for these rows, and `costs` has
        what a round costs in ms by its tokens.
        """
        drafts = [NO_DRAFT] * len(rows)
        branch = rows[0].branch
        assert branch is not None
        group = self._groups[branch.group_id]
        levels = self._grow(group, rows)
        depth = self._depth(levels, load, costs)
        group.levels = [level.grade for level in levels[:depth]]
        tokens: list[list[int]] = [[] for _ in rows]
        parents: list[list[int]] = [[] for _ in rows]
        for level in levels[:depth]:
            for tip in level.tips:
                tokens[tip.row].append(tip.tail[-1])
                parents[tip.row].append(tip.node)
        for number, (found, above) in enumerate(zip(tokens, parents, strict=True)):
            if found:
                drafts[number] = Draft(tuple(found), tuple(above), (SOURCE,) * len(found))
        return drafts

    def _grow(self, group: Group, rows: Sequence[Row]) -> list[_Level]:
        """Return the levels that a search over guesses visits, as far as the rows have room.

        The `node` of a level's tips is their parent's.
        """
        branches = [row.branch for row in rows if row.branch is not None]
        width = max(2, branches[0].width)
        tips = [
            _Tip(branch.score, number, -1, self._tails[row.sequence_id], branch.known)
            for number, (row, branch) in enumerate(zip(rows, branches, strict=True))
        ]
        room = [row.draft_max for row in rows]
        used = [0] * len(rows)
        levels: list[_Level] = []
        while len(levels) < DEPTH_MAX:
            level = _level(group, tips, width)
            if level is None:
                break
            tips = list[_Tip]()
            for score, row, _, tail, _ in level.tips:
                tips.append(_Tip(score, row, used[row], tail))
                used[row] += 1
            if any(count > most for count, most in zip(used, room, strict=True)):
                break
            levels.append(level)
        return levels

    def _depth(self, levels: list[_Level], load: int, costs: Sequence[float]) -> int:
        """Return how many levels make the most steps per millisecond, none included."""
        best_depth, best_rate = 0, WORTH / costs[load]
        sizes = accumulate(len(level.tips) for level in levels)
        steps, chance = 1.0, 1.0
        for depth, (level, size) in enumerate(zip(levels, sizes, strict=True), start=1):
            if load + size >= len(costs):
                break
            chance *= self._covered[level.grade]
            steps += chance
            rate = steps / costs[load + size]
            if rate > best_rate:
                best_depth, best_rate = depth, rate
        return best_depth


def _level(group: Group, tips: list[_Tip], width: int) -> _Level | None:
    """Return the next level: the guessed survivors and the next best."""
    candidates: list[_Tip] = []
    sure = 0.0
    for place, (score, row, node, tail, known) in enumerate(tips):
        guess = Guess(known[:OFFERS_MAX], KNOWN) if known else group.guess(tail)
        if guess is None:
            continue
        for token, logprob in guess.offers:
            candidates.append(_Tip(score + logprob, row, node, (*tail, token)[-ORDERS:]))
        if place < width:
            sure += SURE[guess.sureness]
    if len(candidates) < min(width, len(tips)):
        return None
    best = nlargest(width + SPARE, candidates, key=lambda tip: tip.score)
    return _Level(best, round(GRADES * min(1.0, sure / width)))


def _followers(tokens: Sequence[int]) -> dict[Tail, int]:
    """Return the token that last followed each two and three tokens."""
    found: dict[Tail, int] = {}
    for order in (2, 3):
        for stop in range(order, len(tokens)):
            found[tuple(tokens[stop - order : stop])] = tokens[stop]
    return found
