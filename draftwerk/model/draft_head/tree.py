"""Draft trees from a draft head, for all rows of a round at once, a level at a time."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from draftwerk.model.draft_head.head import HeadStep
from draftwerk.model.draft_head.layout import TreeLayout
from draftwerk.model.reference.sampler import LOSS_MAX
from draftwerk.speculative.parameters.elementary import exp
from draftwerk.speculative.row_parts.feedback import LOSS_NATS, HeadNode
from draftwerk.speculative.sources.draft_head import node_levels
from draftwerk.speculative.sources.sequence_noise import SequenceNoise

if TYPE_CHECKING:
    from draftwerk.model.batch.batch import Pages

LEVELS = 3
"""Tokens ahead."""
LOOKED = 24
"""Candidates that are ranked where there is noise: it lifts the twentieth now and then."""
BEST = 8
"""Candidates that a node names."""
EXPANDED = 2
"""Candidates of one row that are expanded, at each level."""
OPEN_MAX = 16
"""Candidates of all rows that are expanded, at each level: with many rows steps are dear."""
CHANCE_MIN = 0.25
"""A path less likely than this is not expanded."""


class TextPages(NamedTuple):
    """A text's keys and values in the target's pages, of all tokens before a start's."""

    pages: "Pages | None"
    length: int
    blocks: tuple[int, ...]
    window_blocks: tuple[int, ...]


UNREAD = TextPages(None, 0, (), ())
"""The pages that a head does not read."""


class Start(NamedTuple):
    """Where a row's guesses begin."""

    states: Tensor
    """[n, H] float32: behind the last tokens but one, as the target's head reads them."""
    row: int
    """Its index; a tensor of its own takes longer to make than what is done with it."""
    token: int
    """The last token."""
    position: int
    """The position of the token after it."""
    noise: SequenceNoise
    sequence_id: int = 0
    text: TextPages = UNREAD

    @property
    def state(self) -> Tensor:
        """The one where the row begins, [H]."""
        return self.states[self.row]


class _Open(NamedTuple):
    """A token whose successors are wanted."""

    row: int
    parent: int
    token: int
    state: Tensor
    chance: float


LAYOUT = TreeLayout(LEVELS, EXPANDED, BEST)
"""The layout of trees that a device grows."""
ScoredCandidates = Sequence[tuple[float, int, int]]
"""(score, token, loss) of candidates, best first."""


class Drafter(HeadStep, Protocol):
    """A draft head of any kind: what a round asks for the drafts of the next one."""

    def propose(self, rows: Sequence[Start], budget: int, /) -> list[tuple[HeadNode, ...]]:
        """Return each row's nodes, parents first, for at most `budget` tokens ahead."""
        ...


def build_trees(
    step: HeadStep, starts: Sequence[Start], budget: int = LEVELS, open_max: int = OPEN_MAX
) -> list[tuple[HeadNode, ...]]:
    """Return each row's nodes, parents first.

    At a level at most `open_max` candidates of all rows are expanded.
    """
    found: list[list[HeadNode]] = [[] for _ in starts]
    level = [_Open(row, -1, start.token, start.state, 1.0) for row, start in enumerate(starts)]
    looked = LOOKED if any(start.noise.sampled for start in starts) else BEST
    for depth in range(min(LEVELS, budget)):
        if not level:
            break
        states, tokens, logprobs = step(
            torch.stack([one.state for one in level]), [one.token for one in level], looked
        )
        children: list[list[_Open]] = [[] for _ in starts]
        for one, state, best, chances in zip(level, states, tokens, logprobs, strict=True):
            start, head_tree = starts[one.row], found[one.row]
            ranked = _ranked(start.noise, start.position + depth, best, chances)
            children[one.row].extend(_children(one, len(head_tree), state, ranked))
            head_tree.append(_head_node(one, ranked))
        chance = attrgetter("chance")
        level = [one for several in children for one in nlargest(EXPANDED, several, chance)]
        if len(level) > open_max:
            likeliest = sorted(range(len(level)), key=lambda index: -level[index].chance)
            level = [level[index] for index in sorted(likeliest[:open_max])]
    return [tuple(head_tree) for head_tree in found]


def within(head_tree: tuple[HeadNode, ...], budget: int) -> tuple[HeadNode, ...]:
    """Return the nodes for at most `budget` tokens ahead of a tree that a device grew whole."""
    return head_tree[: sum(level <= budget for level in node_levels(head_tree))]


def _head_node(one: _Open, ranked: ScoredCandidates) -> HeadNode:
    return HeadNode(
        one.parent,
        one.token,
        tuple([token for _, token, _ in ranked]),
        tuple([loss for *_, loss in ranked]),
    )


def _children(one: _Open, parent: int, state: Tensor, ranked: ScoredCandidates) -> Iterable[_Open]:
    """Yield the children that may be expanded, with the estimated chance of their path."""
    weights = [exp(score - ranked[0][0]) for score, *_ in ranked]
    share = one.chance / sum(weights)
    for (_, token, _), weight in zip(ranked[:EXPANDED], weights, strict=False):
        if share * weight >= CHANCE_MIN:
            yield _Open(one.row, parent, token, state, share * weight)


def _ranked(
    noise: SequenceNoise, position: int, tokens: Sequence[int], logprobs: Sequence[float]
) -> ScoredCandidates:
    """Return the best candidates for a place, noise included."""
    losses = [min(round(-value / LOSS_NATS), LOSS_MAX) for value in logprobs]
    return rank_losses(noise, position, tokens, losses)


def rank_losses(
    noise: SequenceNoise, position: int, tokens: Sequence[int], losses: Sequence[int]
) -> ScoredCandidates:
    """Return the best candidates for a place, noise included."""
    by_token = dict(zip(tokens, losses, strict=True))
    ranked = noise.ranked(position, tokens, losses)[:BEST]
    return [(score, token, by_token[token]) for score, token in ranked]
