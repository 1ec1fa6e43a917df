"""The sampling rule over tensors: the twin of `speculative.sampling`, on any device.

Scores are float64 from the edits on, as in the reference, so both choose the same token.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.reference.gumbel import gumbel, noise_keys
from draftwerk.model.reference.logit_edits import EditedTokens
from draftwerk.speculative.parameters.elementary import log
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import WINDOW_NATS, Sampling

LOSS_MAX = 4095
TopTokens = tuple[tuple[int, ...], tuple[int, ...]]
"""The best next tokens, best first, and their losses in LOSS_NATS."""
NUCLEUS_START = 256
"""How many of the best tokens are sorted first; eight times as many when they fall short."""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """Which token is next at one node."""

    logits_row: int
    position: int
    sampling: Sampling
    logit_edits: EditedTokens | None = None
    allowed: NDArray[np.int32] | None = None
    """A bit for each token that the grammar allows, from the lowest bit of the first word."""

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is chosen, after edits."""
        return self.sampling.temperature == 0.0

    @property
    def is_plain(self) -> bool:
        """Whether the raw logits' argmax is enough."""
        return (
            self.logit_edits is None and self.allowed is None and self.sampling.temperature == 0.0
        )


def choose_many(logits: Tensor, requests: SequenceOf[SamplingRequest]) -> list[int]:
    """Return the seeded target's token for each request, from raw float32 logits [S, vocab]."""
    # Apart, since a float64 copy of a vocabulary is dear: most greedy rows need no more than an
    # argmax over the raw logits.
    plain = [index for index, request in enumerate(requests) if request.is_plain]
    edited = [
        index
        for index, request in enumerate(requests)
        if request.is_greedy and not request.is_plain
    ]
    sampled = [index for index, request in enumerate(requests) if not request.is_greedy]
    chosen = [0] * len(requests)
    for index, token in zip(plain, _argmax(logits, [requests[i] for i in plain]), strict=True):
        chosen[index] = token
    for index in edited:
        chosen[index] = int(scores_of(logits, requests[index]).argmax())
    for index, token in zip(sampled, _sample(logits, [requests[i] for i in sampled]), strict=True):
        chosen[index] = token
    return chosen


def _argmax(logits: Tensor, requests: list[SamplingRequest]) -> list[int]:
    if not requests:
        return []
    # Picking rows copies them, and they are wide.
    if len(requests) < len(logits):
        logits = logits[
            torch.tensor([request.logits_row for request in requests], device=logits.device)
        ]
    return logits.argmax(-1).tolist()


def _sample(logits: Tensor, requests: list[SamplingRequest]) -> list[int]:
    """Truncate row by row, then draw the noise of all candidates at once."""
    if not requests:
        return []
    distributions = [
        truncated(scores_of(logits, request) / request.sampling.temperature, request.sampling)
        for request in requests
    ]
    keyed = (
        (request.sampling.seed, request.sampling.branch, request.position) for request in requests
    )
    counts = [len(tokens) for tokens, _ in distributions]
    tokens, values = (torch.cat(parts) for parts in zip(*distributions, strict=True))
    rows = torch.arange(len(requests), device=logits.device)
    rows = rows.repeat_interleave(torch.tensor(counts, device=logits.device))
    totals = values + gumbel(tokens, rows, noise_keys(keyed, logits.device))
    pairs = zip(tokens.split(counts), totals.split(counts), strict=True)
    # Of equal totals the lowest token, which `argmax` does not promise.
    return [int(ids[total == total.max()].min()) for ids, total in pairs]


def edited(scores: Tensor, logit_edits: EditedTokens | None) -> Tensor:
    """Apply edits to float64 scores [vocab], in place."""
    if logit_edits is not None:
        tokens = torch.from_numpy(logit_edits.tokens).to(scores.device)
        changed = logit_edits.apply(scores[tokens].cpu().numpy())
        scores[tokens] = torch.from_numpy(changed).to(scores.device)
    return scores


def scores_of(logits: Tensor, request: SamplingRequest) -> Tensor:
    """Return the edited float64 scores [vocab] of one request, -inf where a grammar forbids."""
    return allowed_of(edited(logits[request.logits_row].double(), request.logit_edits), request)


def allowed_of(scores: Tensor, request: SamplingRequest) -> Tensor:
    """Put -inf where a grammar forbids, in place."""
    if request.allowed is not None:
        bits = np.unpackbits(request.allowed.view(np.uint8), count=len(scores), bitorder="little")
        scores[torch.from_numpy(bits == 0).to(scores.device)] = -inf
    return scores


def truncated(scaled: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return the tokens that may be sampled, and their scaled scores."""
    best = float(scaled.max())
    # First, as in the reference: few of a vocabulary are left to be sorted.
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


def logprobs(logits: Tensor, choices: SequenceOf[tuple[int, int, int]]) -> list[ChosenLogprob]:
    """Return raw log-probabilities for (row, chosen token, count of alternatives)."""
    if not choices:
        return []
    rows, tokens, counts = (torch.tensor(column) for column in zip(*choices, strict=True))
    distributions = logits[rows.to(logits.device)].double().log_softmax(-1)
    chosen = distributions.gather(-1, tokens.to(logits.device)[:, None])[:, 0].tolist()
    values, indexes = distributions.topk(int(counts.max()), dim=-1)
    tops = zip(indexes.tolist(), values.tolist(), counts.tolist(), strict=True)
    return [
        ChosenLogprob(logprob, tuple(zip(top[:count], best[:count], strict=True)))
        for logprob, (top, best, count) in zip(chosen, tops, strict=True)
    ]


def best_tokens(logits: Tensor, rows: SequenceOf[int], count: int) -> list[TopTokens]:
    """Return the `count` best tokens of these rows, best first; equal ones in any order."""
    values, tokens = logits[list(rows)].log_softmax(-1).topk(count, dim=-1)
    return ranked(tokens, values)


def losses_of(logprobs: Tensor) -> Tensor:
    """Return int32 losses in LOSS_NATS: how far each is below certainty."""
    return (logprobs * (-1 / LOSS_NATS)).round().clamp(0, LOSS_MAX).int()


def ranked(tokens: Tensor, logprobs: Tensor) -> list[TopTokens]:
    """Return tokens [n, count] and how far they are below certainty, row by row."""
    losses = losses_of(logprobs)
    return [
        (tuple(row), tuple(lost))
        for row, lost in zip(tokens.tolist(), losses.tolist(), strict=True)
    ]


def candidates(
    logits: Tensor, counted: SequenceOf[tuple[SamplingRequest, int]]
) -> list[tuple[tuple[int, float], ...]]:
    """Return for each request the `count` best next tokens with their log-probabilities, best
    first.

    At temperature 0 edits and grammar come after the logarithm and nothing is normalised again, as
    in Transformers' beam search. Above 0 the distribution is the one that is sampled from, and the
    best are those that its noise puts first.
    """
    return [
        _likeliest(logits, request, count) if request.is_greedy else _drawn(logits, request, count)
        for request, count in counted
    ]


def _likeliest(
    logits: Tensor, request: SamplingRequest, count: int
) -> tuple[tuple[int, float], ...]:
    distribution = logits[request.logits_row].double().log_softmax(-1)
    scores = allowed_of(edited(distribution, request.logit_edits), request)
    tokens, values = _best(torch.arange(len(scores), device=logits.device), scores, count)
    return tuple(
        (token, value)
        for token, value in zip(tokens.tolist(), values.tolist(), strict=True)
        if request.allowed is None or value > -inf
    )


def _drawn(logits: Tensor, request: SamplingRequest, count: int) -> tuple[tuple[int, float], ...]:
    sampling = request.sampling
    tokens, values = truncated(scores_of(logits, request) / sampling.temperature, sampling)
    distribution = values.log_softmax(-1)
    keys = noise_keys(((sampling.seed, sampling.branch, request.position),), logits.device)
    order = (distribution + gumbel(tokens, torch.zeros_like(tokens), keys)).argsort(
        descending=True
    )[:count]
    return tuple(zip(tokens[order].tolist(), distribution[order].tolist(), strict=True))


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
