"""The plain twin of keys and values in `int4`: what is kept of them, in torch and float32.

Heads are turned by a Hadamard matrix, so that their numbers are about normal, and take levels of a
trellis that are best for those (Lloyd, Max), times a scale in bf16. A key is kept less the mean of
keys or less the key of a text's first token, whichever is nearer, a value perhaps less that
token's, and their channels are multiplied by factors: all are learnt from one text.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.signature import PLAIN, Scoring
from draftwerk.model.batch.batch import Batch
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.native.learnt_keys import learn_keys, tokens_of_all_parts
from draftwerk.model.reference.forward import TorchForward

KEY_BITS, VALUE_BITS = 5, 4
SHARED = 1 / 256
"""Of a channel's spread: that of all."""
TRIES = {KEY_BITS: (0.95, 1.05), VALUE_BITS: (0.8, 0.9)}
"""By bits, scales of numbers that vary by one: the nearer direction is kept."""
RUN = 32
"""Numbers behind which a trellis begins anew."""
STATES = 8
PER_ONE = 32
"""Steps of a number by which the levels around it are found."""


class HeadForm(NamedTuple):
    """What keys or values are kept less of, whichever is nearer, and times: [heads, size] each."""

    usual: Tensor
    first: Tensor
    factors: Tensor


class KeptAttention:
    """Attention over keys and values as they are kept; one layer is called after another."""

    def __init__(self) -> None:
        self.learnt: list[tuple[HeadForm, HeadForm]] = []
        """Of each layer's keys and values."""
        self.learns = False
        self.calls = 0

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, scoring: Scoring = PLAIN
    ) -> Tensor:
        if self.learns:
            kept_keys, kept_values = keys, values
            own, worth = (each.flatten(0, 1)[batch.slots.long()] for each in (keys, values))
            later = query.new_ones(len(query)).bool()
            later[batch.row_starts[:-1].long()] = False
            of_keys = learnt_form(query[later], own[later], own[0])
            self.learnt.append((of_keys, learnt_values(worth[later], worth[0])))
        else:
            of_keys, of_values = self.learnt[self.calls % len(self.learnt)]
            self.calls += 1
            kept_keys = kept(keys, KEY_BITS, of_keys)
            kept_values = kept(values, VALUE_BITS, of_values)
        return attend(query, kept_keys, kept_values, batch, scoring)

    def learn(self, begins: bool) -> None:
        """Begin to learn a form of keys from what is read, or end it."""
        self.learns = begins


def learnt_form(queries: Tensor, keys: Tensor, first: Tensor) -> HeadForm:
    """Return the form of keys [tokens, heads, size] with the least errors of scores."""
    mean = keys.mean(0)
    asked = queries.unflatten(1, (keys.shape[1], -1)).square().sum((0, 2))
    spread = (keys - mean).square().sum(0)
    return HeadForm(mean, first, factors_of(asked, spread))


def learnt_values(values: Tensor, first: Tensor) -> HeadForm:
    """Return the form of values [tokens, heads, size]."""
    spread = values.square().sum(0)
    return HeadForm(torch.zeros_like(first), first, factors_of(torch.ones_like(spread), spread))


def factors_of(asked: Tensor, spread: Tensor) -> Tensor:
    """Return what balances how much channels are asked for and how much they vary."""
    asked, spread = (each + SHARED * each.mean(-1, keepdim=True) for each in (asked, spread))
    factors = (asked / spread).sqrt().sqrt()
    return torch.where(factors.isfinite() & (factors > 0), factors, 1.0)


def kept(heads: Tensor, bits: int, learnt: HeadForm | None) -> Tensor:
    """Return heads [..., size] as they are read again."""
    if learnt is None:
        return rounded_heads(heads, bits)
    apart = [(heads - each) * learnt.factors for each in (learnt.usual, learnt.first)]
    lengths = [each.square().sum(-1, keepdim=True) for each in apart]
    is_first = lengths[1] < lengths[0]
    near = rounded_heads(torch.where(is_first, apart[1], apart[0]), bits) / learnt.factors
    return near + torch.where(is_first, learnt.first, learnt.usual)


def rounded_heads(heads: Tensor, bits: int) -> Tensor:
    """Return heads turned, rounded to levels at a scale of each, and turned back."""
    turn, levels = hadamard(heads.shape[-1]), normal_levels(bits + 2)
    rotated = heads @ turn
    spread, best, nearest_by = rotated.square().mean(-1, keepdim=True).sqrt(), rotated, -1.0
    for each in TRIES.get(bits, (1.0,)):
        found = followed(rotated / kept_scale(spread * each), levels)
        along = (rotated * found).sum(-1, keepdim=True)
        near = along * along.abs() / found.square().sum(-1, keepdim=True)
        best = torch.where(near > nearest_by, found, best)
        nearest_by = near.clamp_min(nearest_by)
    along = (rotated * best).sum(-1, keepdim=True)
    straight = rotated.square().sum(-1, keepdim=True) / along
    return best * kept_scale(torch.where(along > 0, straight, spread)) @ turn


def kept_scale(scale: Tensor) -> Tensor:
    """Return scales as they are kept."""
    return scale.clamp_min(2.0**-100).bfloat16().float()


def followed(numbers: Tensor, levels: Tensor) -> Tensor:
    """Return the levels that a trellis has for numbers [..., size]."""
    found, size = torch.empty_like(numbers), numbers.shape[-1]
    for first in range(0, size, 2 * RUN):
        count = min(RUN, (size - first) // 2)
        for start in (first, first + count):
            run = numbers[..., start : start + count]
            found[..., start : start + count] = best_way(run.flatten(0, -2), levels).view(run.shape)
    return found


def best_way(numbers: Tensor, levels: Tensor) -> Tensor:
    """Return the levels of a run [heads, count] with the least errors together (Viterbi).

    A state is the last three u of codes, the latest lowest; a branch's label is the state that it
    leads to, whose lowest bit is inverted if the u that it forgets was set.
    """
    states = torch.arange(STATES)
    subsets = (states >> 2) | (states & 2) | ((states & 1) << 2)
    choices = around(numbers, levels, subsets)
    errors = (choices - numbers[..., None]).square()
    cost = torch.where(states == 0, 0.0, 1e30).expand(len(numbers), -1)
    forgotten: list[Tensor] = []
    for error in errors.unbind(1):
        clear = cost[:, states >> 1] + error
        was_set = cost[:, 4 + (states >> 1)] + error[:, states ^ 1]
        forgotten.append((was_set < clear).long())
        cost = torch.minimum(clear, was_set)
    state = cost.argmin(1, keepdim=True)
    for at, each in reversed([*enumerate(forgotten)]):
        bit = each.gather(1, state)
        choices[:, at, 0] = choices[:, at].gather(1, state ^ bit)[:, 0]
        state = state >> 1 | bit << 2
    return choices[..., 0]


def around(numbers: Tensor, levels: Tensor, subsets: Tensor) -> Tensor:
    """Return of eight levels in order around each number those of the subsets [..., 8]."""
    half, last = STATES // 2, len(levels) - STATES
    middles = (levels[half - 1 : half - 1 + last] + levels[half : half + last]) / 2
    steps = (numbers * PER_ONE).round().clamp(-4 * PER_ONE, 4 * PER_ONE - 1)
    start = torch.bucketize(steps / PER_ONE, middles)[..., None]
    return levels[start + (subsets - start) % STATES]


@cache
def hadamard(size: int) -> Tensor:
    """Return a symmetric orthogonal matrix of a power of two."""
    found = torch.ones(1, 1)
    while len(found) < size:
        found = torch.cat([torch.cat([found, found], 1), torch.cat([found, -found], 1)])
    return found / math.sqrt(size)


@cache
def normal_levels(bits: int) -> Tensor:
    """Return the levels that round normal numbers with the least squared error, in bf16."""
    count = 2**bits
    numbers = torch.special.ndtri((torch.arange(200_001, dtype=torch.float64) + 0.5) / 200_001)
    levels = torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count)
    sums = torch.cat([torch.zeros_like(numbers[:1]), numbers.cumsum(0)])
    for _ in range(400):
        edges = torch.searchsorted(numbers, (levels[1:] + levels[:-1]) / 2, right=True)
        bounds = torch.tensor([0, *edges.tolist(), len(numbers)])
        levels = sums[bounds].diff() / bounds.diff().clamp_min(1)
    return levels.bfloat16().float()


def twin_of(config: ModelConfig, weights: Weights) -> TorchForward:
    """Return the forward pass over keys and values as they are kept, learnt from all tokens."""
    attention = KeptAttention()
    forward = TorchForward(config, weights, attention)
    text, plain = tokens_of_all_parts(config.vocab_size), (torch.float32, config.head_size)
    learn_keys(forward, config, text, plain, attention.learn)
    return forward
