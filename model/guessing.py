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
BEST = 12
"""Candidates that a thought names: with noise the tenth is said now and then."""
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
    for depth in range(LEVELS):
        if not level:
            break
        states, tokens, logprobs = step(
            torch.stack([one.state for one in level]), [one.token for one in level], BEST
        )
        children: list[list[_Open]] = [[] for _ in starts]
        for place, one in enumerate(level):
            losses = [min(round(-value / LOSS_NATS), LOSS_MAX) for value in logprobs[place]]
            one.thoughts.append(Thought(one.parent, one.token, tuple(tokens[place]), tuple(losses)))
            if depth + 1 == LEVELS:
                continue
            start = starts[one.row]
            ranked = start.key.ranked(start.position + depth, tokens[place], losses)
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


def _likeliest(ranked: Sequence[tuple[float, int]]) -> Iterable[tuple[int, float]]:
    """Return the first candidates with about the chance that each is right."""
    weights = [exp(score - ranked[0][0]) for score, _ in ranked]
    total = sum(weights)
    pairs = zip(ranked[:EXPANDED], weights, strict=False)
    return [(token, weight / total) for (_, token), weight in pairs]


def _best(several: list[_Open]) -> list[_Open]:
    return sorted(several, key=lambda one: -one.chance)[:EXPANDED]
