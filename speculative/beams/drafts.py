"""Drafts for beam searches: one forest over all branches of a search, grown by a guessed search.

The forest is what a beam search over guesses would visit, level by level: of each level the nodes
that are likely enough to survive. A level that missed a survivor is not lost: after the others the
target has then spoken, and the next round guesses only after the missing ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp
from operator import itemgetter
from typing import NamedTuple

from draftwerk.speculative.beams.memory import OFFERS_MAX, BeamMemory, Offers
from draftwerk.speculative.protocol.rounds import NO_DRAFT, SILENT, Draft, Round, Row
from draftwerk.speculative.sources.ngram_index import GAP, PAD, Occurrences

SOURCE = "beams"
DEPTH_MAX = 8
NODES_MAX = 32
"""Of a forest: a round of more makes everybody else wait."""
SPARE = 3
"""Nodes of a level beyond the beam's width."""
EDGES = (1.2, 0.6, 0.4, 0.35, 0.2, 0.15, 0.1)
SLOPES = (1.1, 1.6, 1.9, 2.1, 3.0, 3.0, 6.0)
DOUBTS = (1.0, 1.0, 0.9, 0.8, 0.6, 0.6, 0.0)
"""Counted, by how surely it is known what follows a node: the lead over its rivals, in nats, with
which a candidate survives half the time, the slope of its log-odds, and how much it depends on the
trust in guesses. What is known is after how many tokens the target was heard in this search."""
KNOWN = 6
"""It has spoken after the node itself, and only other branches can surprise."""
LEAD_MAX = 5.0
"""Nats; more is no surer."""
TRUST_START = 0.6
TRUST_WEIGHT = 10.0
"""Levels that the trust to start with is worth."""
TRUST_DECAY = 0.95
CHANCE_MIN = 0.06
"""Of a node, however little it costs."""
PRICE_MAX = 0.3
"""Above it nothing is drafted: a whole level that sure is rare, and looking for it takes time."""


class _Tip(NamedTuple):
    """A path of the forest that may grow."""

    score: float
    row: int
    node: int
    tail: list[int]
    known: Offers = ()
    """What will be offered after it, where that was seen already."""
    hunch: Offers = ()
    """What a draft head thinks."""


class _Candidate(NamedTuple):
    """A token that could follow a tip."""

    score: float
    tip: _Tip
    token: int
    sureness: int
    """An index of EDGES."""


class _Hope(NamedTuple):
    """What a level promises."""

    chance: float
    """That all that its step needs is in it, if the guesses are what they seem."""
    guessed: float
    """The share of its parents after which the target has not spoken."""


@dataclass(slots=True)
class _Search:
    """What is remembered of one search."""

    memory: BeamMemory
    hopes: list[_Hope] = field(default_factory=list[_Hope])
    """Of each level of the last forest."""
    expected: float = TRUST_WEIGHT
    came_true: float = TRUST_WEIGHT * TRUST_START

    @property
    def trust(self) -> float:
        """How often a guessed level holds what it promises."""
        return min(1.0, self.came_true / self.expected)

    def learn(self, depth: int) -> None:
        """Take in how deep the last forest was right."""
        self.expected = (self.expected - TRUST_WEIGHT) * TRUST_DECAY + TRUST_WEIGHT
        start = TRUST_WEIGHT * TRUST_START
        self.came_true = (self.came_true - start) * TRUST_DECAY + start
        for level, hope in enumerate(self.hopes[: depth + 1]):
            self.expected += hope.guessed * hope.chance
            self.came_true += hope.guessed * (level < depth)
        self.hopes = []


class Forests:
    """Every live search's memory and the ends of its branches."""

    def __init__(self) -> None:
        self._searches: dict[int, _Search] = {}
        self._tails: dict[int, list[int]] = {}

    @property
    def size(self) -> int:
        """Return how many searches and branches are remembered."""
        return len(self._searches) + len(self._tails)

    def read(self, round_: Round, prompt: Callable[[int], Occurrences]) -> None:
        """Take in a round's branches and endings; `prompt` returns the text of a search's root."""
        branches = [(row, row.branch) for row in round_.rows if row.branch is not None]
        copied = [self._tails.get(branch.origin or row.sequence_id) for row, branch in branches]
        for sequence_id in round_.closed:  # a search may come back in the round that closes it
            self._searches.pop(sequence_id, None)
            self._tails.pop(sequence_id, None)
        for (row, branch), tail in zip(branches, copied, strict=True):
            opening = row.opening
            if branch.group_id not in self._searches:
                text = Occurrences(opening.tokens) if opening else prompt(branch.group_id)
                self._searches[branch.group_id] = _Search(BeamMemory(text))
            if opening:
                tail = [GAP] * PAD + list(opening.tokens[-PAD:])
            elif tail is None:
                tail = prompt(branch.group_id).tokens
            self._tails[row.sequence_id] = [*tail, *row.news][-PAD:]
            if branch.seen:
                search = self._searches[branch.group_id]
                search.memory.learn(branch.seen)
                search.learn(len(row.news) - 1)

    def propose(self, rows: Sequence[Row], load: int, costs: Sequence[float]) -> list[Draft]:
        """Return a draft for each row of one search, all of them sampling; silent where none pay.

        `load` counts the round's tokens before anything is drafted for these rows, and `costs` has
        what a round costs in ms by its tokens.
        """
        branches = [row.branch for row in rows if row.branch is not None]
        search = self._searches[branches[0].group_id]
        market = _Market(branches[0].width, max(load, len(rows)), len(rows), costs)
        if market.price(0) > PRICE_MAX:
            return [SILENT] * len(rows)
        search.memory.index()
        tips = [
            _Tip(
                branch.score,
                number,
                -1,
                self._tails[row.sequence_id],
                branch.known,
                branch.hunch,
            )
            for number, (row, branch) in enumerate(zip(rows, branches, strict=True))
        ]
        growth = _Growth(search, rows, market)
        growth.grow(tips)
        search.hopes = growth.hopes
        return growth.drafts()

    def check(self) -> None:
        """Assert that every chance is one, and that every branch's end can be looked up."""
        assert all(0.0 <= search.trust <= 1.0 for search in self._searches.values())
        assert all(len(tail) == PAD for tail in self._tails.values())


@dataclass(frozen=True, slots=True)
class _Market:
    """What a node costs a round, as the chance to survive that it must have.

    A step that is saved is worth the search's share of a round, since the others need theirs
    anyway, and a survivor is worth a part of that, since a step needs as many as the beam is wide.
    """

    width: int
    load: int
    """Tokens of the round before the forest: a search's are at least as many as its branches, if
    not in this round, then in the next."""
    rows: int
    costs: Sequence[float]
    """Of a round in ms, by its tokens."""

    def price(self, nodes: int) -> float:
        """Return the chance that a node needs beside as many.

        The slope is taken over many tokens, since the curve is learnt from noisy steps.
        """
        start = self.load + nodes
        more = min(2 * self.rows, len(self.costs) - 1 - start)
        if more < 1:
            return 1.0
        slope = (self.costs[start + more] - self.costs[start]) / more
        share = self.rows / self.load * self.costs[self.load]
        return max(CHANCE_MIN, self.width * slope / share)


@dataclass(slots=True)
class _Growth:
    """A forest as it grows."""

    search: _Search
    rows: Sequence[Row]
    market: _Market
    nodes: list[list[tuple[int, int]]] = field(init=False)
    """By row, the (token, parent) of each node."""
    hopes: list[_Hope] = field(default_factory=list[_Hope])

    @property
    def width(self) -> int:
        return self.market.width

    def __post_init__(self) -> None:
        self.nodes = [[] for _ in self.rows]

    def grow(self, tips: list[_Tip]) -> None:
        """Add level after level, as long as all that a step needs may be there.

        A last level that is not whole still spares the next round; alone, it would save no step.
        """
        reached = 1.0
        while len(self.hopes) < DEPTH_MAX:
            candidates = self._candidates(tips)
            if len(candidates) < min(self.width, len(tips)):
                return
            best = candidates[: self.width]
            guessed = sum(DOUBTS[one.sureness] for one in best) / len(best)
            tips, suffices = self._level(candidates, reached)
            if len(tips) < self.width and not self.hopes:
                self.nodes = [[] for _ in self.rows]
                return
            self.hopes.append(_Hope(suffices, guessed))
            if len(tips) < self.width:
                return
            reached *= suffices * self.search.trust**guessed

    def drafts(self) -> list[Draft]:
        """Return the forest by rows."""
        return [_draft(nodes) for nodes in self.nodes]

    def _candidates(self, tips: list[_Tip]) -> list[_Candidate]:
        """Return what may follow: the likeliest, best first, as many as are looked at."""
        memory = self.search.memory
        found: list[_Candidate] = []
        for tip in tips:
            offers, sureness = tip.known[:OFFERS_MAX], KNOWN
            if not offers:
                offers, sureness = memory.guess(tip.tail, tip.hunch)
            for token, logprob in offers:
                found.append(_Candidate(tip.score + logprob, tip, token, sureness))
        return nlargest(self.width + SPARE + 1, found, key=itemgetter(0))

    def _level(self, candidates: list[_Candidate], reached: float) -> tuple[list[_Tip], float]:
        """Add the candidates that are worth it; return them and the chance that they suffice.

        What decides is how far a candidate's score is from that of the last one to survive, or of
        the first not to.
        """
        width = self.width
        last = candidates[min(width, len(candidates)) - 1].score
        first_out = candidates[width].score if len(candidates) > width else -float("inf")
        tips: list[_Tip] = []
        suffices = 1.0
        size = sum(map(len, self.nodes))
        price = self.market.price(size) / reached
        for place, (score, tip, token, sureness) in enumerate(candidates):
            lead = min(score - (first_out if place < width else last), LEAD_MAX)
            chance = _chance(lead, sureness)
            nodes = self.nodes[tip.row]
            if (
                chance < price
                or len(nodes) >= self.rows[tip.row].draft_max
                or size + len(tips) >= NODES_MAX
            ):
                suffices *= 1.0 - chance
                continue
            tips.append(_Tip(score, tip.row, len(nodes), [*tip.tail[1:], token]))
            nodes.append((token, tip.node))
        return tips, suffices


def _draft(nodes: list[tuple[int, int]]) -> Draft:
    tokens, parents = tuple(token for token, _ in nodes), tuple(parent for _, parent in nodes)
    return Draft(tokens, parents, (SOURCE,) * len(nodes)) if nodes else NO_DRAFT


def _chance(lead: float, sureness: int) -> float:
    """Return how likely a candidate with this lead over its rivals is to survive."""
    return 1.0 / (1.0 + exp(-SLOPES[sureness] * (lead - EDGES[sureness])))
