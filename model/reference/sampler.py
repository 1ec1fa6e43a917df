"""The sampling rule over tensors: the twin of `speculative.sampling.params`, on any device.

Scores are float64 from the edits on, as in the reference, so both choose the same token.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from math import inf, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.reference.gumbel import gumbel, noise_keys
from draftwerk.model.reference.logit_edits import Touched
from draftwerk.speculative.protocol.rounds import LOSS_NATS, TokenLogprob
from draftwerk.speculative.sampling.params import WINDOW_NATS, Sampling

LOSS_MAX = 4095
Ranked = tuple[tuple[int, ...], tuple[int, ...]]
"""The best next tokens, best first, and their losses in LOSS_NATS."""
NUCLEUS_START = 256
"""How many of the best tokens are sorted first; eight times as many when they fall short."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Which token is next at one node."""

    logits_row: int
    position: int
    sampling: Sampling
    edits: Touched | None = None
    allowed: NDArray[np.int32] | None = None
    """A bit for each token that the grammar allows, from the lowest bit of the first word."""

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is wanted, after edits."""
        return self.sampling.temperature == 0.0

    @property
    def is_plain(self) -> bool:
        """Whether the raw logits' argmax is all that is wanted."""
        return self.edits is None and self.allowed is None and self.sampling.temperature == 0.0


def choose_many(logits: Tensor, asks: SequenceOf[Ask]) -> list[int]:
    """Return the seeded target's token for each ask, from raw float32 logits [S, vocab]."""
    plain = [index for index, ask in enumerate(asks) if ask.is_plain]
    edited = [index for index, ask in enumerate(asks) if ask.is_greedy and not ask.is_plain]
    sampled = [index for index, ask in enumerate(asks) if not ask.is_greedy]
    chosen = [0] * len(asks)
    for index, token in zip(plain, _argmax(logits, [asks[i] for i in plain]), strict=True):
        chosen[index] = token
    for index in edited:
        chosen[index] = int(scores_of(logits, asks[index]).argmax())
    for index, token in zip(sampled, _sample(logits, [asks[i] for i in sampled]), strict=True):
        chosen[index] = token
    return chosen


def _argmax(logits: Tensor, asks: list[Ask]) -> list[int]:
    if not asks:
        return []
    if len(asks) < len(logits):
        logits = logits[torch.tensor([ask.logits_row for ask in asks], device=logits.device)]
    return logits.argmax(-1).tolist()


def _sample(logits: Tensor, asks: list[Ask]) -> list[int]:
    """Truncate row by row, then draw the noise of all candidates at once."""
    if not asks:
        return []
    laws = [
        truncated(scores_of(logits, ask) / ask.sampling.temperature, ask.sampling) for ask in asks
    ]
    keyed = ((ask.sampling.seed, ask.sampling.branch, ask.position) for ask in asks)
    counts = [len(tokens) for tokens, _ in laws]
    tokens, values = (torch.cat(parts) for parts in zip(*laws, strict=True))
    rows = torch.arange(len(asks), device=logits.device)
    rows = rows.repeat_interleave(torch.tensor(counts, device=logits.device))
    totals = values + gumbel(tokens, rows, noise_keys(keyed, logits.device))
    pairs = zip(tokens.split(counts), totals.split(counts), strict=True)
    return [int(ids[total == total.max()].min()) for ids, total in pairs]


def edited(scores: Tensor, edits: Touched | None) -> Tensor:
    """Apply edits to float64 scores [vocab], in place."""
    if edits is not None:
        tokens = torch.from_numpy(edits.tokens).to(scores.device)
        changed = edits.apply(scores[tokens].cpu().numpy())
        scores[tokens] = torch.from_numpy(changed).to(scores.device)
    return scores


def scores_of(logits: Tensor, ask: Ask) -> Tensor:
    """Return the edited float64 scores [vocab] of one ask, -inf where a grammar forbids."""
    return allowed_of(edited(logits[ask.logits_row].double(), ask.edits), ask)


def allowed_of(scores: Tensor, ask: Ask) -> Tensor:
    """Put -inf where a grammar forbids, in place."""
    if ask.allowed is not None:
        bits = np.unpackbits(ask.allowed.view(np.uint8), count=len(scores), bitorder="little")
        scores[torch.from_numpy(bits == 0).to(scores.device)] = -inf
    return scores


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


def best_tokens(logits: Tensor, count: int) -> list[Ranked]:
    """Return the `count` best tokens of every row, best first; equal ones in any order."""
    values, tokens = logits.log_softmax(-1).topk(count, dim=-1)
    return ranked(tokens, values)


def losses_of(logprobs: Tensor) -> Tensor:
    """Return int32 losses in LOSS_NATS: how far each is below certainty."""
    return (logprobs * (-1 / LOSS_NATS)).round().clamp(0, LOSS_MAX).int()


def ranked(tokens: Tensor, logprobs: Tensor) -> list[Ranked]:
    """Return tokens [n, count] and how far they are below certainty, row by row."""
    losses = losses_of(logprobs)
    return [
        (tuple(row), tuple(lost))
        for row, lost in zip(tokens.tolist(), losses.tolist(), strict=True)
    ]


def offers(
    logits: Tensor, asked: SequenceOf[tuple[Ask, int]]
) -> list[tuple[tuple[int, float], ...]]:
    """Return for each ask the `count` best next tokens with their log-probabilities, best first.

    At temperature 0 edits and grammar come after the logarithm and nothing is normalised again, as
    in Transformers' beam search. Above 0 the law is the one that is sampled from, and the best are
    those that its noise puts first.
    """
    return [
        _likeliest(logits, ask, count) if ask.is_greedy else _drawn(logits, ask, count)
        for ask, count in asked
    ]


def _likeliest(logits: Tensor, ask: Ask, count: int) -> tuple[tuple[int, float], ...]:
    law = logits[ask.logits_row].double().log_softmax(-1)
    scores = allowed_of(edited(law, ask.edits), ask)
    tokens, values = _best(torch.arange(len(scores), device=logits.device), scores, count)
    return tuple(
        (token, value)
        for token, value in zip(tokens.tolist(), values.tolist(), strict=True)
        if ask.allowed is None or value > -inf
    )


def _drawn(logits: Tensor, ask: Ask, count: int) -> tuple[tuple[int, float], ...]:
    sampling = ask.sampling
    tokens, values = truncated(scores_of(logits, ask) / sampling.temperature, sampling)
    law = values.log_softmax(-1)
    keys = noise_keys(((sampling.seed, sampling.branch, ask.position),), logits.device)
    order = (law + gumbel(tokens, torch.zeros_like(tokens), keys)).argsort(descending=True)[:count]
    return tuple(zip(tokens[order].tolist(), law[order].tolist(), strict=True))


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
