"""Trees of guesses from a draft head, for all rows of a round at once, a level at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import NamedTuple

import torch
from torch import Tensor

from model.draft_head import Step
from speculative.key import Key
from speculative.rounds import LOSS_NATS, Thought

LEVELS = 3
"""Tokens ahead."""
LOOKED = 24
"""Candidates that are ranked where there is noise: it lifts the twentieth now and then."""
BEST = 8
"""Candidates that a thought names."""
EXPANDED = 2
"""Candidates of one row that are thought on from, at each level."""
CHANCE_MIN = 0.1
"""A path less likely than this is not thought on from."""
LOSS_MAX = 4095


class Start(NamedTuple):
    """Where a row's guesses begin."""

    state: Tensor
    """[H] float32: behind the last token but one, as the target's head reads it."""
    token: int
    """The last token."""
    position: int
    """Of the token after it."""
    key: Key


@dataclass(slots=True)
class _Open:
    """A token whose successors are wanted."""

    row: int
    parent: int
    token: int
    state: Tensor
    chance: float
    thoughts: list[Thought] = field(repr=False)


def guesses(step: Step, starts: Sequence[Start]) -> list[tuple[Thought, ...]]:
    """Return each row's thoughts, parents first."""
    found: list[list[Thought]] = [[] for _ in starts]
    level = [
        _Open(row, -1, start.token, start.state, 1.0, found[row])
        for row, start in enumerate(starts)
    ]
    looked = LOOKED if any(start.key.sampled for start in starts) else BEST
    for depth in range(LEVELS):
        if not level:
            break
        states, tokens, logprobs = step(
            torch.stack([one.state for one in level]), [one.token for one in level], looked
        )
        children: list[list[_Open]] = [[] for _ in starts]
        for place, one in enumerate(level):
            start = starts[one.row]
            ranked = _ranked(start.key, start.position + depth, tokens[place], logprobs[place])
            best, losses = zip(*((token, loss) for _, token, loss in ranked), strict=True)
            one.thoughts.append(Thought(one.parent, one.token, best, losses))
            if depth + 1 == LEVELS:
                continue
            parent = len(one.thoughts) - 1
            for token, chance in _likeliest(ranked):
                if one.chance * chance >= CHANCE_MIN:
                    children[one.row].append(
                        _Open(
                            one.row,
                            parent,
                            token,
                            states[place],
                            one.chance * chance,
                            one.thoughts,
                        )
                    )
        level = [one for several in children for one in _best(several)]
    return [tuple(thoughts) for thoughts in found]


def _ranked(
    key: Key, position: int, tokens: Sequence[int], logprobs: Sequence[float]
) -> list[tuple[float, int, int]]:
    """Return (score, token, loss) of the best candidates for a place, noise included."""
    losses = [min(round(-value / LOSS_NATS), LOSS_MAX) for value in logprobs]
    by_token = dict(zip(tokens, losses, strict=True))
    ranked = key.ranked(position, tokens, losses)[:BEST]
    return [(score, token, by_token[token]) for score, token in ranked]


def _likeliest(ranked: Sequence[tuple[float, int, int]]) -> Iterable[tuple[int, float]]:
    """Return the first candidates with about the chance that each is right."""
    weights = [exp(score - ranked[0][0]) for score, *_ in ranked]
    total = sum(weights)
    pairs = zip(ranked[:EXPANDED], weights, strict=False)
    return [(token, weight / total) for (_, token, _), weight in pairs]


def _best(several: list[_Open]) -> list[_Open]:
    return sorted(several, key=lambda one: -one.chance)[:EXPANDED]
