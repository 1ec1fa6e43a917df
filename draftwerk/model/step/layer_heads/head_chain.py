"""Draft trees that are chains, with rivals at each node: what follows the best guess before."""

from collections.abc import Callable, Sequence

from torch import Tensor

from draftwerk.model.draft_head.tree import BEST, CHANCE_MIN, LEVELS, LOOKED, Start, rank_losses
from draftwerk.model.reference.sampler import TopTokens
from draftwerk.speculative.parameters.elementary import exp
from draftwerk.speculative.row_parts.feedback import HeadNode


class HeadChain:
    """A tree under construction: one text's guesses, each after the best before it."""

    def __init__(self, start: Start) -> None:
        self.start, self.nodes = start, list[HeadNode]()
        self.said, self.state = start.token, start.state
        self._chance = 1.0

    def extend(self, state: Tensor, tokens: Sequence[int], losses: Sequence[int]) -> bool:
        """Add what may follow the newest guess; return whether to go on from the best of it."""
        depth, start = len(self.nodes), self.start
        ranked = rank_losses(start.noise, start.position + depth, tokens, losses)
        _, best, lost = zip(*ranked, strict=True)
        self.nodes.append(HeadNode(depth - 1, self.said, best, lost))
        self._chance /= sum(exp(score - ranked[0][0]) for score, *_ in ranked)
        self.said, self.state = best[0], state
        return self._chance >= CHANCE_MIN


ChainGuess = Callable[[Sequence[HeadChain], int, int], tuple[list[TopTokens], Tensor]]
"""A function of chains, the depth and how many tokens are looked at: the best after each, and the
states."""


def grow_chains(
    starts: Sequence[Start], guess: ChainGuess, budget: int = LEVELS
) -> list[tuple[HeadNode, ...]]:
    """Return each row's draft tree, parents first."""
    chains = growing = [HeadChain(one) for one in starts]
    looked = LOOKED if any(one.noise.sampled for one in starts) else BEST
    for depth in range(min(LEVELS, budget) if starts else 0):
        best, states = guess(growing, depth, looked)
        found = zip(growing, states, best, strict=True)
        growing = [chain for chain, state, one in found if chain.extend(state, *one)]
        if not growing:
            break
    return [tuple(chain.nodes) for chain in chains]
