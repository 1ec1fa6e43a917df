"""The sampling rule over tensors: the twin of `speculative.sampling`, on any device.

Scores are float64 from the edits on, as in the reference, so both choose the same token.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from model.edits import Touched
from model.philox import gumbel
from speculative.rounds import TokenLogprob
from speculative.sampling import WINDOW_NATS, Sampling

NUCLEUS_START = 256
"""How many of the best tokens are sorted first; eight times as many when they fall short."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Which token is next at one node."""

    logits_row: int
    position: int
    sampling: Sampling
    edits: Touched | None = None


def choose_many(logits: Tensor, asks: SequenceOf[Ask]) -> list[int]:
    """Return the seeded target's token for each ask, from raw float32 logits [S, vocab]."""
    greedy = [index for index, ask in enumerate(asks) if _is_plain_greedy(ask)]
    chosen = [-1] * len(asks)
    if greedy:
        rows = [asks[index].logits_row for index in greedy]
        for index, token in zip(greedy, _argmax(logits, rows), strict=True):
            chosen[index] = token
    for index, ask in enumerate(asks):
        if chosen[index] < 0:
            chosen[index] = choose(scores_of(logits, ask), ask.position, ask.sampling)
    return chosen


def scores_of(logits: Tensor, ask: Ask) -> Tensor:
    """Return the edited float64 scores [vocab] of one ask."""
    scores = logits[ask.logits_row].double()
    if ask.edits is not None:
        tokens = torch.from_numpy(ask.edits.tokens).to(logits.device)
        changed = ask.edits.apply(scores[tokens].cpu().numpy())
        scores[tokens] = torch.from_numpy(changed).to(logits.device)
    return scores


def choose(scores: Tensor, position: int, sampling: Sampling) -> int:
    """Return the token at `position` given edited float64 scores [vocab]."""
    if sampling.temperature == 0.0:
        return int(scores.argmax())
    tokens, values = truncated(scores / sampling.temperature, sampling)
    totals = values + gumbel(sampling.seed, sampling.branch, position, tokens)
    return int(tokens[totals == totals.max()].min())


def truncated(scaled: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return the tokens that may be sampled, and their scaled scores."""
    best = float(scaled.max())
    tokens = (scaled >= best - WINDOW_NATS).nonzero()[:, 0]
    values = scaled[tokens]
    if 0 < sampling.top_k < len(values):
        tokens, values = _best(tokens, values, sampling.top_k)
    if sampling.top_p < 1.0:
        tokens, values = _nucleus(tokens, values, best, sampling.top_p)
    if sampling.min_p > 0.0:
        kept = values >= best + log(sampling.min_p)
        tokens, values = tokens[kept], values[kept]
    return tokens, values


def logprobs(logits: Tensor, asked: SequenceOf[tuple[int, int, int]]) -> list[TokenLogprob]:
    """Return raw log-probabilities for (row, chosen token, alternatives wanted)."""
    if not asked:
        return []
    rows, tokens, counts = (torch.tensor(column) for column in zip(*asked, strict=True))
    laws = logits[rows.to(logits.device)].double().log_softmax(-1)
    chosen = laws.gather(-1, tokens.to(logits.device)[:, None])[:, 0].tolist()
    values, indexes = laws.topk(int(counts.max()), dim=-1)
    tops = zip(indexes.tolist(), values.tolist(), counts.tolist(), strict=True)
    return [
        TokenLogprob(logprob, tuple(zip(top[:count], best[:count], strict=True)))
        for logprob, (top, best, count) in zip(chosen, tops, strict=True)
    ]


def _is_plain_greedy(ask: Ask) -> bool:
    return ask.sampling.temperature == 0.0 and ask.edits is None


def _argmax(logits: Tensor, rows: list[int]) -> list[int]:
    if len(rows) < len(logits):
        logits = logits[torch.tensor(rows, device=logits.device)]
    return logits.argmax(-1).tolist()


def _best(tokens: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` best, best first, equal ones by token; `tokens` ascend.

    `topk` leaves the order of equal scores open, so it only finds the threshold.
    """
    if count < len(values):
        kept = values >= values.topk(count).values[-1]
        tokens, values = tokens[kept], values[kept]
    ordered, order = values.sort(descending=True, stable=True)
    return tokens[order][:count], ordered[:count]


def _nucleus(tokens: Tensor, values: Tensor, best: float, top_p: float) -> tuple[Tensor, Tensor]:
    """Return the fewest of the best tokens that make up `top_p` of the mass, best first."""
    goal = top_p * float((values - best).exp().sum())
    count = NUCLEUS_START
    while True:
        first, ordered = _best(tokens, values, count)
        mass = (ordered - best).exp().cumsum(0)
        reached = (mass >= goal).nonzero()
        if len(reached):
            size = int(reached[0]) + 1
            return first[:size], ordered[:size]
        if count >= len(values):
            return first, ordered
        count *= 8
