"""Choices under top-k and top-p on the device, in torch, without a number read back.

The best tokens of a row are enough where its cut lies among them. Where it does not, as in a nearly
flat distribution, the answer is UNKNOWN, and the twin is asked later.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from draftwerk.model.reference.gumbel import noise_of
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative.sampling import WINDOW_NATS

CANDIDATES = 1024
"""Tokens of a row among which its cut is looked for."""
UNKNOWN = -1


def is_truncated(request: SamplingRequest) -> bool:
    """Return whether a request's distribution has a cut that its scores alone do not tell."""
    sampling = request.sampling
    return sampling.temperature != 0 and (sampling.top_k != 0 or sampling.top_p != 1.0)


def choose_truncated(logits: Tensor, keys: Tensor, params: Tensor) -> Tensor:
    """Return int32 tokens [n] of rows of logits [n, vocab], or UNKNOWN.

    `keys` are as in `reference.gumbel.noise_keys`; `params` are float64 [n, 4]: temperature, the
    lowest score that counts, top-k and top-p.
    """
    temperature, depth, top_k, top_p = params[:, :, None].unbind(1)
    values, tokens = _ranked(logits, min(CANDIDATES, logits.shape[1]))
    scaled = values.double() / temperature
    best, count = scaled[:, :1], scaled.shape[1]
    rank = torch.arange(count, device=logits.device)
    kept = (scaled >= best - WINDOW_NATS) & ((top_k == 0) | (rank < top_k))
    shares = torch.where(kept, (scaled - best).exp(), 0.0)
    every = logits.double() / temperature
    window = torch.where(every >= best - WINDOW_NATS, (every - best).exp(), 0.0)
    whole = torch.where(top_k == 0, window.sum(1, True), shares.sum(1, True))
    # A token is of the nucleus where those before it fall short.
    kept &= (top_p == 1.0) | (shares.cumsum(1) - shares < top_p * whole)
    kept &= scaled >= best + depth
    totals = torch.where(kept, scaled + noise_of(tokens, keys), float("-inf"))
    most = totals.max(1, True).values
    chosen = torch.where(totals == most, tokens, logits.shape[1]).min(1).values
    if count == logits.shape[1]:
        return chosen.int()
    # Of tokens as good as the last of these there may be others.
    complete = (values > values[:, -1:]).sum(1)
    is_known = (kept.sum(1) <= complete) & (top_k[:, 0] <= count)
    return torch.where(is_known, chosen, UNKNOWN).int()


def _ranked(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the best logits [n, count] and their tokens, best first, equal ones by token."""
    values, tokens = logits.topk(count, dim=1)
    tokens, order = tokens.sort(dim=1)
    values, best = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, tokens.gather(1, best)


def without_unknown(answers: Tensor, begins: Tensor) -> Tensor:
    """Return answers of trees' nodes, of whose trees that hold an UNKNOWN the root is one too.

    Nothing is walked there: what the twin says later decides the path from the root on.
    """
    before = pad((answers == UNKNOWN).cumsum(0), (1, 0))
    begins = begins.long()
    roots, holds = begins[:-1], before[begins[1:]] > before[begins[:-1]]
    return answers.index_copy(0, roots, torch.where(holds, UNKNOWN, answers[roots]))
