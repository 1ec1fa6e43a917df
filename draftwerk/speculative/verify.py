"""Verification: which drafted tokens the seeded target accepts, and where a row ends.

    last known token ── answer ──> drafted?  yes: accepted, the next answer is the one after it
                                             no:  committed as well, and the row ends

The target with a seed has one answer after each token: the argmax of log-probability plus noise
from a counter (`sampling.choose`). Drafts only say where answers are worth computing
beforehand, so any draft gives the same text. Two twins do the same for a whole round:
`model.gpu.commit.walk_kernel` on a device, and the native sampler's `answer`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from draftwerk.speculative.rounds import Draft

__all__ = ["TreeWalk", "accept"]


@dataclass(slots=True)
class TreeWalk:
    """The walk of one row: from its last known token down its draft, an answer at a time."""

    draft: Draft
    stop_token_ids: Collection[int] = ()
    """Tokens that end the text."""
    first: int = 0
    """The number of the answer after the last known token; that after node n is first + n + 1."""
    node: int = field(default=-1, init=False)
    """The last accepted node; -1 is the last known token."""
    tokens: list[int] = field(default_factory=list[int], init=False)
    """Committed tokens: the accepted ones, then one of the target's own."""
    path: list[int] = field(default_factory=list[int], init=False)
    """Accepted nodes, root side first."""
    children: dict[tuple[int, int], int] = field(init=False)
    """The node of every (parent, token)."""

    def __post_init__(self) -> None:
        self.children = self.draft.children()

    @property
    def place(self) -> int:
        """The number of the answer that comes next."""
        return self.first + self.node + 1

    @property
    def goes_on(self) -> bool:
        """Whether another token will follow the committed ones."""
        return bool(self.tokens) and self.tokens[-1] not in self.stop_token_ids

    def accept(self, answer: int) -> bool:
        """Commit the target's answer; return whether it was drafted and ends no text."""
        # The answer is committed whether it was drafted or not: so no draft changes a text.
        node = self.children.get((self.node, answer))
        self.tokens.append(answer)
        if node is None or answer in self.stop_token_ids:
            return False
        self.path.append(node)
        self.node = node
        return True


def accept(walk: TreeWalk, answers: Mapping[int, int]) -> bool:
    """Walk on as far as answers are known, by number; return whether one more is to be computed."""
    while (answer := answers.get(walk.place)) is not None:
        if not walk.accept(answer):
            return False
    return True
