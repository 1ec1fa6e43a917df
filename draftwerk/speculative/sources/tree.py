"""The draft tree of one sequence and round: the paths of all sources merged."""

from collections.abc import Sequence

from draftwerk.speculative.rounds import NO_DRAFT, Draft, Row
from draftwerk.speculative.sources.acceptance import (
    DEPTHS,
    PER_SOURCE,
    AcceptanceStats,
    SequenceAcceptance,
)

PREDICTION = "prediction"
NODES_MAX = 63
"""A row's ancestor masks are 64-bit words, and the last committed token takes one bit."""
CHANCE_MAX = 0.98
"""Nothing is certain: keeps a long chain's path product falling."""


class DraftTree:
    """Nodes in topological order; the same path proposed twice is one node.

    Every proposer of a node is credited with it, so that one verdict teaches all of them. The node
    itself carries the name and the chance of the proposer that is surest of it; but what the
    client predicted is always called the client's.
    """

    __slots__ = (
        "_children",
        "_factors",
        "acceptance",
        "credit_cells",
        "credit_nodes",
        "depths",
        "owners",
        "parents",
        "scores",
        "tokens",
    )

    def __init__(
        self, acceptance: AcceptanceStats, sequence_acceptance: SequenceAcceptance
    ) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.scores: list[float] = []
        """The chance that a node is right if its parent is."""
        self.owners: list[int] = []
        self.credit_nodes: list[int] = []
        self.credit_cells: list[int] = []
        self._children: dict[int, int] = {}
        self.acceptance = acceptance
        self._factors = sequence_acceptance.factors

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, kind: int) -> int:
        """Add a node under `parent` (-1 is the root) and return it, or -1 if the tree is full."""
        depth = self.depths[parent] + 1 if parent >= 0 else 0
        cell = kind + (depth if depth < DEPTHS else DEPTHS - 1)
        source = cell // PER_SOURCE
        chance = self.acceptance.chances[cell] * self._factors[source]
        if chance > CHANCE_MAX:
            chance = CHANCE_MAX
        # One number a node: its parent, the root included, has six bits. This is the hot path.
        key = token << 6 | parent + 1
        node = self._children.get(key)
        if node is None:
            node = len(self.tokens)
            if node == NODES_MAX:
                return -1
            self._children[key] = node
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(depth)
            self.scores.append(chance)
            self.owners.append(source)
        elif chance > self.scores[node]:
            self.scores[node] = chance
            if self.acceptance.names[self.owners[node]] != PREDICTION:
                self.owners[node] = source
        self.credit_nodes.append(node)
        self.credit_cells.append(cell)
        return node

    def add_chain(self, parent: int, tokens: Sequence[int], kind: int) -> None:
        """Add a path below `parent`, as far as there is room."""
        for token in tokens:
            parent = self.add(parent, token, kind)
            if parent < 0:
                return

    def child(self, parent: int, token: int) -> int:
        """Return the child of a node with this token, or -1."""
        return self._children.get(token << 6 | parent + 1, -1)

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Return the nodes along `tokens`, as deep as the tree has them."""
        path: list[int] = []
        node = -1
        for token in tokens:
            node = self.child(node, token)
            if node < 0:
                break
            path.append(node)
        return path

    def chances(self) -> list[float]:
        """Return each node's chance that its whole path is right; never above its parent's.

        Siblings exclude each other, so scores that add up to more than one are scaled down to it.
        """
        totals = [0.0] * (len(self.tokens) + 1)
        for parent, score in zip(self.parents, self.scores, strict=True):
            totals[parent + 1] += score
        path_chances: list[float] = []
        for parent, score in zip(self.parents, self.scores, strict=True):
            total = totals[parent + 1]
            chance = score / total if total > 1.0 else score
            path_chances.append(chance * path_chances[parent] if parent >= 0 else chance)
        return path_chances

    def draft(self, nodes: list[int], blank: Draft = NO_DRAFT) -> Draft:
        """Return the chosen nodes, closed under parents, as a draft with the wishes of `blank`."""
        if not nodes:
            return blank
        # Parents have lower numbers than their children, so this is a topological order.
        nodes.sort()
        if nodes[-1] == len(nodes) - 1:  # the first nodes of the tree: nothing to renumber
            parents = self.parents[: len(nodes)]
        else:
            indices = {node: index for index, node in enumerate(nodes)}
            indices[-1] = -1
            parents = [indices[self.parents[node]] for node in nodes]
        names = self.acceptance.names
        return Draft(
            tuple([self.tokens[node] for node in nodes]),
            tuple(parents),
            tuple([names[self.owners[node]] for node in nodes]),
            wants_topk=blank.wants_topk,
            wants_levels=blank.wants_levels,
            followed=blank.followed,
        )

    def check(self) -> None:
        """Assert topological order, unique siblings and aligned columns."""
        count = len(self.tokens)
        assert count <= NODES_MAX
        assert all(-1 <= parent < node for node, parent in enumerate(self.parents))
        assert len(set(zip(self.parents, self.tokens, strict=True))) == count
        assert count == len(self.depths) == len(self.scores) == len(self.owners)
        assert len(self._children) == count


class DraftSource:
    """Guesses one sequence's next tokens; `registry.SOURCES` lists the sources."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        """Draft as this row of the table."""
        self._number = number

    def read(self, row: Row) -> None:
        """Take in what came with the sequence's newest row, after its committed tokens."""

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Add guesses to the tree, in paths of at most `depth_max` tokens."""
        raise NotImplementedError
