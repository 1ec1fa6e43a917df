"""What may follow in a block whose places are guessed at once, and the draft tree of it.

A place's guesses stand by themselves, or depend on the one before.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from draftwerk.model.draft_head.tree import CHANCE_MIN, EXPANDED, Start, rank_losses
from draftwerk.model.reference.sampler import TopTokens
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.speculative.parameters.elementary import exp
from draftwerk.speculative.row_parts.feedback import HeadNode

Followers = Callable[[int, int], TopTokens]
"""A function of a place, by row, and the token before it: the best tokens there."""
BlockGuesses = Callable[[Tensor, Tensor, int], Followers]
"""A function of states and logits of places, and how many tokens are looked at."""
LEVEL_MAX = 4
"""Paths of a block that are followed beside each other."""


def independent_guesses(vocabulary: Sequence[int], rank: RankTokens) -> BlockGuesses:
    """Return guesses that do not depend on those before; `vocabulary` is by row of the logits."""

    def guesses(_: Tensor, logits: Tensor, looked: int) -> Followers:
        found = rank(logits, range(len(logits)), min(looked, len(vocabulary)))
        best = [(tuple(vocabulary[each] for each in tokens), lost) for tokens, lost in found]
        return lambda place, _: best[place]

    return guesses


def block_tree(start: Start, places: Sequence[int], followers: Followers) -> tuple[HeadNode, ...]:
    """Return the draft tree of a block's places, by level; the best path is whole.

    Beside it there are rivals, and what follows them while a path is as likely as a head's is.
    """
    nodes, level = list[HeadNode](), [(-1, start.token, 1.0)]
    for depth, place in enumerate(places):
        further = list[tuple[int, int, float]]()
        for parent, token, chance in level:
            ranked = rank_losses(start.noise, start.position + depth, *followers(place, token))
            _, best, lost = zip(*ranked, strict=True)
            weights = [exp(score - ranked[0][0]) for score, *_ in ranked]
            likely = [chance * weight / sum(weights) for weight in weights[:EXPANDED]]
            further += [(len(nodes), *each) for each in zip(best, likely, strict=False)]
            nodes.append(HeadNode(parent, token, best, lost))
        rivals = sorted(further[1:], key=lambda each: -each[2])[: LEVEL_MAX - 1]
        level = [further[0], *(each for each in rivals if each[2] >= CHANCE_MIN)]
    return tuple(nodes)
