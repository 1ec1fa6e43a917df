"""Beam draft trees: one draft tree per branch of a search, grown together by a guessed search.

The trees hold what a beam search over predicted candidates would visit, level by level: of each
level the nodes that are likely enough to survive. A level that misses a survivor is not wasted: the
candidates after the others are then known, and the next round drafts only after the missing ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

from draftwerk.speculative.options.beams.memory import CANDIDATES_MAX, BeamMemory, RankedCandidates
from draftwerk.speculative.options.beams.survival import (
    KNOWN,
    PRICE_MAX,
    SURENESS,
    NodeCost,
    chance,
    leads,
)
from draftwerk.speculative.rounds import NO_DRAFT, NO_FEEDBACK, Draft, Round, Row
from draftwerk.speculative.sources.ngram_index import GAP, PAD, Occurrences

SOURCE = "beams"
DEPTH_MAX = 8
NODES_MAX = 32
"""Most nodes of all trees of a search: larger rounds delay the other requests."""
SPARE = 3
"""Nodes of a level beyond the beam's width."""
ACCURACY_START = 0.6
ACCURACY_WEIGHT = 10.0
"""Weight of the initial accuracy, in levels."""
ACCURACY_DECAY = 0.95


class Leaf(NamedTuple):
    """The end of a path that may grow."""

    score: float
    row: int
    node: int
    tail: list[int]
    known: RankedCandidates = ()
    """The candidates after it, where they were computed already."""
    head_candidates: RankedCandidates = ()
    """The draft head's candidates after it."""


class GuessedCandidate(NamedTuple):
    """A token that could follow a tip."""

    score: float
    leaf: Leaf
    token: int
    sureness: int
    """An index of `SURENESS`."""


class _LevelEstimate(NamedTuple):
    """How likely a level is to be enough."""

    chance: float
    """The chance that all that its step needs is in it, if the guesses are what they seem."""
    guessed: float
    """The share of its parents after which the target was not evaluated."""


@dataclass(slots=True)
class _Search:
    """State kept for one search."""

    memory: BeamMemory
    estimates: list[_LevelEstimate] = field(default_factory=list[_LevelEstimate])
    """Estimates of each level of the last trees."""
    expected: float = ACCURACY_WEIGHT
    came_true: float = ACCURACY_WEIGHT * ACCURACY_START

    @property
    def guess_accuracy(self) -> float:
        """How often a guessed level holds all that its step needs, relative to the estimate."""
        return min(1.0, self.came_true / self.expected)

    def learn(self, depth: int) -> None:
        """Count the levels of the last trees that held all that their step needed."""
        self.expected = (self.expected - ACCURACY_WEIGHT) * ACCURACY_DECAY + ACCURACY_WEIGHT
        start = ACCURACY_WEIGHT * ACCURACY_START
        self.came_true = (self.came_true - start) * ACCURACY_DECAY + start
        for level, estimate in enumerate(self.estimates[: depth + 1]):
            self.expected += estimate.guessed * estimate.chance
            self.came_true += estimate.guessed * (level < depth)
        self.estimates = []


class BeamDrafts:
    """Every live search's memory and the ends of its branches."""

    def __init__(self) -> None:
        self._searches: dict[int, _Search] = {}
        self._tails: dict[int, list[int]] = {}

    @property
    def size(self) -> int:
        """Return how many searches and branches are remembered."""
        return len(self._searches) + len(self._tails)

    def read(self, round_: Round, prompt: Callable[[int], Occurrences]) -> None:
        """Record a round's branches and finished searches; `prompt` returns a root's text."""
        branches = [
            (row, row.options.branch) for row in round_.rows if row.options.branch is not None
        ]
        copied = [self._tails.get(branch.origin or row.sequence_id) for row, branch in branches]
        for (
            sequence_id
        ) in round_.finished_ids:  # a search may come back in the round that closes it
            self._searches.pop(sequence_id, None)
            self._tails.pop(sequence_id, None)
        for (row, branch), tail in zip(branches, copied, strict=True):
            new_sequence = row.new_sequence
            if branch.group_id not in self._searches:
                text = Occurrences(new_sequence.tokens) if new_sequence else prompt(branch.group_id)
                self._searches[branch.group_id] = _Search(BeamMemory(text))
            if new_sequence:
                tail = [GAP] * PAD + list(new_sequence.tokens[-PAD:])
            elif tail is None:
                tail = prompt(branch.group_id).tokens
            self._tails[row.sequence_id] = [*tail, *row.new_token_ids][-PAD:]
            if branch.seen:
                search = self._searches[branch.group_id]
                search.memory.learn(branch.seen)
                search.learn(len(row.new_token_ids) - 1)

    def propose(self, rows: Sequence[Row], load: int, costs: Sequence[float]) -> list[Draft]:
        """Return a draft for each row of one search, all of them sampling; silent where none pay.

        `load` counts the round's tokens before anything is drafted for these rows, and `costs` has
        what a round costs in ms by its tokens.
        """
        branches = [row.options.branch for row in rows if row.options.branch is not None]
        search = self._searches[branches[0].group_id]
        counts, again = (max(load, len(rows)), len(rows)), rows[0].options.state is not None
        node_cost = NodeCost(branches[0].width, *counts, costs, is_read_again=again)
        if node_cost.price(0) > PRICE_MAX:
            return [NO_FEEDBACK] * len(rows)
        search.memory.index()
        leaves = [
            Leaf(
                branch.score,
                number,
                -1,
                self._tails[row.sequence_id],
                branch.known,
                branch.head_candidates,
            )
            for number, (row, branch) in enumerate(zip(rows, branches, strict=True))
        ]
        builder = TreeBuilder(search, rows, node_cost)
        builder.grow(leaves)
        search.estimates = builder.estimates
        return builder.drafts()

    def check(self) -> None:
        """Assert that every chance is one, and that every branch's end can be looked up."""
        assert all(0.0 <= search.guess_accuracy <= 1.0 for search in self._searches.values())
        assert all(len(tail) == PAD for tail in self._tails.values())


@dataclass(slots=True)
class TreeBuilder:
    """The draft trees of one search as they grow."""

    search: _Search
    rows: Sequence[Row]
    node_cost: NodeCost
    nodes: list[list[tuple[int, int]]] = field(init=False)
    """By row, the (token, parent) of each node."""
    estimates: list[_LevelEstimate] = field(default_factory=list[_LevelEstimate])

    @property
    def width(self) -> int:
        return self.node_cost.width

    def __post_init__(self) -> None:
        self.nodes = [[] for _ in self.rows]

    def grow(self, leaves: list[Leaf]) -> None:
        """Add level after level, as long as all that a step needs may be there.

        A last level that is not whole still spares the next round; alone, it would save no step.
        """
        reached = 1.0
        while len(self.estimates) < DEPTH_MAX:
            candidates = self.guessed(leaves)
            if len(candidates) < min(self.width, len(leaves)):
                return
            best = candidates[: self.width]
            guessed = sum(SURENESS[one.sureness].doubt for one in best) / len(best)
            leaves, suffices = self._level(candidates, reached)
            if len(leaves) < self.width and not self.estimates:
                self.nodes = [[] for _ in self.rows]
                return
            self.estimates.append(_LevelEstimate(suffices, guessed))
            if len(leaves) < self.width:
                return
            reached *= suffices * self.search.guess_accuracy**guessed

    def drafts(self) -> list[Draft]:
        """Return the draft tree of each row."""
        return [_draft(nodes) for nodes in self.nodes]

    def guessed(self, leaves: list[Leaf]) -> list[GuessedCandidate]:
        """Return what may follow: the likeliest, best first, as many as are looked at."""
        memory = self.search.memory
        found: list[GuessedCandidate] = []
        for leaf in leaves:
            candidates, sureness = leaf.known[:CANDIDATES_MAX], KNOWN
            if not candidates:
                candidates, sureness = memory.guess(leaf.tail, leaf.head_candidates)
            for token, logprob in candidates:
                found.append(GuessedCandidate(leaf.score + logprob, leaf, token, sureness))
        return nlargest(self.width + SPARE + 1, found, key=itemgetter(0))

    def _level(
        self, candidates: list[GuessedCandidate], reached: float
    ) -> tuple[list[Leaf], float]:
        """Add the candidates likelier than their price; return them and the chance that they
        suffice, that is, that none of the others survives.
        """
        leaves: list[Leaf] = []
        suffices = 1.0
        size = sum(map(len, self.nodes))
        price = self.node_cost.price(size) / reached
        ahead = leads([one.score for one in candidates], self.width)
        for (score, leaf, token, sureness), lead in zip(candidates, ahead, strict=True):
            survives = chance(lead, sureness)
            nodes = self.nodes[leaf.row]
            if (
                survives < price
                or len(nodes) >= self.rows[leaf.row].draft_max
                or size + len(leaves) >= NODES_MAX
            ):
                suffices *= 1.0 - survives
                continue
            leaves.append(Leaf(score, leaf.row, len(nodes), [*leaf.tail[1:], token]))
            nodes.append((token, leaf.node))
        return leaves, suffices


def _draft(nodes: list[tuple[int, int]]) -> Draft:
    tokens, parents = tuple(token for token, _ in nodes), tuple(parent for _, parent in nodes)
    return Draft(tokens, parents, (SOURCE,) * len(nodes)) if nodes else NO_DRAFT
