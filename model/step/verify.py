"""How a round's rows find the tokens that they commit, from the logits of their nodes."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from draftwerk.model.reference.sampler import Ask, scores_of, truncated
from draftwerk.model.step.ops import Kit
from draftwerk.model.step.tree_walk import Walk
from draftwerk.speculative.sampling.verification import LAW_MAX, Coin, Verify, coin, judge


class Rule(Protocol):
    """Walks every row as far as its draft stands, and one token on."""

    def __call__(self, kit: Kit, logits: Tensor, walks: Sequence[Walk]) -> None: ...


def keyed(kit: Kit, logits: Tensor, walks: Sequence[Walk]) -> None:
    """Follow the seeded target's one answer at each node, all rows a level at a time."""
    walking = list(walks)
    while walking:
        asked = [(walk, ask) for walk in walking if (ask := walk.ask()) is not None]
        tokens = _answers(kit, logits, asked)
        walking = [
            walk for (walk, _), token in zip(asked, tokens, strict=True) if walk.advance(token)
        ]


def _answers(kit: Kit, logits: Tensor, asked: Sequence[tuple[Walk, Ask]]) -> list[int]:
    """Return the token of every question; those that were foreseen are not asked again."""
    unknown = [ask for walk, ask in asked if ask.logits_row not in walk.foreseen.tokens]
    told = iter(kit.choose(logits, unknown) if unknown else ())
    return [
        next(told) if found is None else found
        for walk, ask in asked
        for found in (walk.foreseen.tokens.get(ask.logits_row),)
    ]


class Drawn:
    """A classical rule, for chains that come with the laws they were drawn from."""

    def __init__(self, rule: Verify) -> None:
        self._rule: Verify = rule

    def __call__(self, kit: Kit, logits: Tensor, walks: Sequence[Walk]) -> None:
        keyed(kit, logits, [walk for walk in walks if not walk.draft.laws])
        for walk in walks:
            if walk.draft.laws and not walk.error:
                self._walk(logits, walk)

    def _walk(self, logits: Tensor, walk: Walk) -> None:
        draft, stop, sampling = walk.draft, walk.row.stop, walk.sequence.sampling
        nodes = range(len(draft.tokens) + 1)
        asks = [walk.sequence.ask(walk.first + n, list(draft.tokens[:n])) for n in nodes]
        targets = [target_law(logits, ask) for ask in asks]
        outcomes = [[token for token, _ in law] for law in draft.laws]
        # One outcome more stands for all tokens that could not have been drafted.
        drafted = [[*(chance for _, chance in law), 0.0] for law in draft.laws]
        wanted = [_gathered(law, found) for law, found in zip(targets, outcomes, strict=False)]
        places = [found.index(t) for found, t in zip(outcomes, draft.tokens, strict=True)]
        toss = coin(sampling, stop, 0, Coin.ACCEPTS)
        accepted, law = judge(self._rule, places, drafted, wanted, toss)
        last = coin(sampling, stop, 0, Coin.LAST)
        if not law:
            walk.take(accepted, drawn(targets[accepted], last))
            return
        place = drawn(torch.tensor(law, dtype=torch.float64), last)
        if place < len(outcomes[accepted]):
            walk.take(accepted, outcomes[accepted][place])
            return
        outside = targets[accepted].clone()
        outside[outcomes[accepted]] = 0.0
        walk.take(accepted, drawn(outside, coin(sampling, stop, 0, Coin.OUTSIDE)))


def target_law(logits: Tensor, ask: Ask) -> Tensor:
    """Return the law that the sampling rule draws from: float64 [vocab], on the CPU."""
    scores = scores_of(logits, ask).cpu() / ask.sampling.temperature
    tokens, values = truncated(scores, ask.sampling)
    law = torch.zeros(len(scores), dtype=torch.float64)
    law[tokens] = values.softmax(-1)
    return law


def draft_law(logits: Tensor, ask: Ask) -> tuple[tuple[int, float], ...]:
    """Return (token, chance) of the best tokens of that law: what a draft may be drawn from."""
    chances, tokens = target_law(logits, ask).topk(min(LAW_MAX, logits.shape[1]))
    chances /= chances.sum()
    pairs = zip(tokens.tolist(), chances.tolist(), strict=True)
    return tuple((token, chance) for token, chance in pairs if chance > 0.0)


def drawn(weights: Tensor, toss: float) -> int:
    """Return the index that a number in (0, 1) falls on; weights need not add up to one."""
    heights = weights.cumsum(0)
    place = int(torch.searchsorted(heights, toss * heights[-1], right=True))
    return min(place, int(weights.nonzero()[-1]))  # rounding


def _gathered(law: Tensor, tokens: list[int]) -> list[float]:
    chances: list[float] = law[tokens].tolist()
    return [*chances, max(0.0, float(law.sum()) - sum(chances))]


def rule_of(verify: Verify) -> Rule:
    """Return the rule with a name."""
    return keyed if verify == "keyed" else Drawn(verify)
