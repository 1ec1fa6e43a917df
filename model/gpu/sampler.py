"""The seeded target's choice on the device: a keyed argmax over the whole vocabulary.

What it serves is greedy, temperature and min-p without edits; every other law is left to the twin,
`model.sampler`. Scores and noise are float64 as there. No token is lost to the window: noise lies
between -3.2 and 22.9, so a token 30 nats below the best cannot win.
"""

from collections.abc import Sequence
from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor

from model import sampler
from model.gpu.launch import ceil_div, launch, power_of_two
from model.gpu.transfer import to_host
from model.sampler import Ask
from speculative.noise import MASK, MULTIPLIERS, ROUNDS, WEYL
from speculative.sampling import WINDOW_NATS

CHUNK = 2048
"""Tokens of one program; a multiple of four, since four tokens share a counter."""
M0: tl.constexpr = tl.constexpr(MULTIPLIERS[0])
M1: tl.constexpr = tl.constexpr(MULTIPLIERS[1])
W0: tl.constexpr = tl.constexpr(WEYL[0])
W1: tl.constexpr = tl.constexpr(WEYL[1])
DEPTH: tl.constexpr = tl.constexpr(ROUNDS)
NO_TOKEN: tl.constexpr = tl.constexpr(2**31 - 1)


@triton.jit
def greatest_kernel(logits, rows, bests, tokens, vocab, row_stride, chunks, CHUNK: tl.constexpr):
    """The greatest logit of one chunk of one row, and the first token that has it."""
    ask = tl.program_id(0)
    chunk = tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    row = tl.load(rows + ask).to(tl.int64)
    scores = tl.load(logits + row * row_stride + token, mask=token < vocab, other=-float("inf"))
    best = tl.max(scores, 0)
    first = tl.min(tl.where((scores == best) & (token < vocab), token, NO_TOKEN), 0)
    tl.store(bests + ask * chunks + chunk, best.to(tl.float64))
    tl.store(tokens + ask * chunks + chunk, first)


@triton.jit
def keyed_kernel(
    logits,
    rows,
    keys,
    laws,
    bests,
    totals,
    tokens,
    vocab,
    row_stride,
    chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The greatest score plus noise of one chunk; `laws` is (temperature, lowest score)."""
    ask = tl.program_id(0)
    chunk = tl.program_id(1)
    temperature = tl.load(laws + ask * 2)
    depth = tl.load(laws + ask * 2 + 1)
    places = tl.arange(0, CHUNKS)
    known = places < chunks
    all_bests = tl.load(bests + ask * chunks + places, mask=known, other=-float("inf"))
    floor = tl.max(all_bests, 0) / temperature + depth
    place = ask * chunks + chunk
    mine = tl.load(bests + place) / temperature
    if mine < floor:
        tl.store(totals + place, -float("inf"))
        tl.store(tokens + place, NO_TOKEN)
    else:
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        row = tl.load(rows + ask).to(tl.int64)
        raw = tl.load(logits + row * row_stride + token, mask=token < vocab, other=-float("inf"))
        scaled = raw.to(tl.float64) / temperature
        c0 = (chunk * (CHUNK // 4) + tl.arange(0, CHUNK // 4)).to(tl.uint32)
        k0 = tl.load(keys + ask * 4).to(tl.uint32)
        k1 = tl.load(keys + ask * 4 + 1).to(tl.uint32)
        c1 = tl.zeros_like(c0) + tl.load(keys + ask * 4 + 2).to(tl.uint32)
        c2 = tl.zeros_like(c0) + tl.load(keys + ask * 4 + 3).to(tl.uint32)
        c3 = tl.zeros_like(c0)
        for _ in tl.static_range(DEPTH):
            high0 = tl.umulhi(c0, tl.full([1], M0, tl.uint32))
            low0 = c0 * tl.full([1], M0, tl.uint32)
            high1 = tl.umulhi(c2, tl.full([1], M1, tl.uint32))
            low1 = c2 * tl.full([1], M1, tl.uint32)
            c0 = high1 ^ c1 ^ k0
            c1 = low1
            c2 = high0 ^ c3 ^ k1
            c3 = low0
            k0 = (k0 + tl.full([1], W0, tl.uint32)).to(tl.uint32)
            k1 = (k1 + tl.full([1], W1, tl.uint32)).to(tl.uint32)
        words = tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))
        uniform = (words.to(tl.float64) + 0.5) * 2.3283064365386963e-10  # 2 ** -32, exact
        sums = scaled - tl.log(-tl.log(uniform))
        sums = tl.where((token < vocab) & (scaled >= floor), sums, -float("inf"))
        best = tl.max(sums, 0)
        tl.store(totals + place, best)
        tl.store(tokens + place, tl.min(tl.where(sums == best, token, NO_TOKEN), 0))


def is_served(ask: Ask) -> bool:
    """Whether the kernels know the ask's law."""
    law = ask.sampling
    edited = ask.edits is not None or ask.allowed is not None
    return not edited and (law.temperature == 0 or (law.top_k == 0 and law.top_p == 1.0))


def choose_many(logits: Tensor, asks: Sequence[Ask]) -> list[int]:
    """Return the seeded target's token for each ask, from raw float32 logits [S, vocab]."""
    served = [ask for ask in asks if is_served(ask)]
    others = [ask for ask in asks if not is_served(ask)]
    # Both queued before either is awaited.
    tokens = _choose(logits, served)
    rest = iter(sampler.choose_many(logits, others))
    mine = iter([] if tokens is None else to_host(tokens).tolist())
    return [next(mine) if is_served(ask) else next(rest) for ask in asks]


def _choose(logits: Tensor, asks: Sequence[Ask]) -> Tensor | None:
    if not asks:
        return None
    device, count = logits.device, len(asks)
    rows = torch.tensor([ask.logits_row for ask in asks], dtype=torch.int32, device=device)
    vocab, stride = logits.shape[1], logits.stride(0)
    chunks = ceil_div(vocab, CHUNK)
    bests = torch.empty(count, chunks, dtype=torch.float64, device=device)
    tokens = torch.empty(count, chunks, dtype=torch.int32, device=device)
    grid, shape = (count, chunks), (vocab, stride, chunks)
    launch(greatest_kernel, grid, logits, rows, bests, tokens, *shape, CHUNK=CHUNK)
    chosen = first_best(bests, tokens)
    drawn = [index for index, ask in enumerate(asks) if not ask.is_greedy]
    if drawn:
        picked = torch.tensor(drawn, device=device)
        chosen[picked] = _draw(logits, [asks[i] for i in drawn], rows[picked], bests[picked])
    return chosen


def _draw(logits: Tensor, asks: list[Ask], rows: Tensor, bests: Tensor) -> Tensor:
    device = logits.device
    keys = [
        (law.seed & MASK, law.seed >> 32 & MASK, ask.position, law.branch)
        for ask in asks
        for law in (ask.sampling,)
    ]
    laws = [
        (law.temperature, max(-WINDOW_NATS, log(law.min_p)) if law.min_p else -WINDOW_NATS)
        for law in (ask.sampling for ask in asks)
    ]
    totals, tokens = torch.empty_like(bests), bests.new_empty(bests.shape, dtype=torch.int32)
    chunks = bests.shape[1]
    launch(
        keyed_kernel,
        (len(asks), chunks),
        logits,
        rows,
        torch.tensor(keys, dtype=torch.int64, device=device),
        torch.tensor(laws, dtype=torch.float64, device=device),
        bests,
        totals,
        tokens,
        logits.shape[1],
        logits.stride(0),
        chunks,
        CHUNK=CHUNK,
        CHUNKS=power_of_two(chunks),
    )
    return first_best(totals, tokens)


def first_best(values: Tensor, tokens: Tensor) -> Tensor:
    """Return the token [n] of each row's greatest value, the lowest of equal ones."""
    best = values == values.max(dim=1, keepdim=True).values
    return torch.where(best, tokens, NO_TOKEN.value).min(dim=1).values
