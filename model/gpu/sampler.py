"""The seeded target's choice on the device: a keyed argmax over the whole vocabulary.

What it serves is greedy, temperature and min-p without edits; every other law is left to the twin,
`model.reference.sampler`. Scores and noise are float64 as there. No token is lost to the window:
noise lies between -3.2 and 22.9, so a token 30 nats below the best cannot win.

Questions go over in one copy and are answered in three launches behind the forward pass.
"""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.gpu.kernels.launch import ceil_div, launch, power_of_two
from draftwerk.model.gpu.transfer import to_device, to_host
from draftwerk.model.reference import sampler
from draftwerk.model.reference.sampler import Ask
from draftwerk.speculative.sampling.gumbel import MASK, MULTIPLIERS, ROUNDS, WEYL
from draftwerk.speculative.sampling.params import WINDOW_NATS, Sampling

CHUNK = 2048
"""Tokens of one program; a multiple of four, since four tokens share a counter."""
M0: tl.constexpr = tl.constexpr(MULTIPLIERS[0])
M1: tl.constexpr = tl.constexpr(MULTIPLIERS[1])
W0: tl.constexpr = tl.constexpr(WEYL[0])
W1: tl.constexpr = tl.constexpr(WEYL[1])
DEPTH: tl.constexpr = tl.constexpr(ROUNDS)
NO_TOKEN: tl.constexpr = tl.constexpr(2**31 - 1)


@triton.jit
def philox_words(c0, key, ahead):
    """The four words of counters (c0, position, branch, 0), in the order of their tokens.

    `key` points at (seed, seed's upper half, position, branch); the position is so far `ahead`.
    """
    k0 = tl.load(key).to(tl.uint32)
    k1 = tl.load(key + 1).to(tl.uint32)
    c1 = tl.zeros_like(c0) + (tl.load(key + 2) + ahead).to(tl.uint32)
    c2 = tl.zeros_like(c0) + tl.load(key + 3).to(tl.uint32)
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
    return c0, c1, c2, c3


@triton.jit
def gumbel_of(words):
    """The noise that a word stands for, in float64."""
    uniform = (words.to(tl.float64) + 0.5) * 2.3283064365386963e-10  # 2 ** -32, exact
    return -tl.log(-tl.log(uniform))


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


# Parts of one buffer lie anywhere: nothing may be compiled again for how they are aligned.
@triton.jit(do_not_specialize_on_alignment=["keys", "laws"])
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
    """The greatest score plus noise of one chunk; `laws` is (temperature, lowest score).

    At temperature 0 the chunk's greatest logit and its token stay what they are.
    """
    ask = tl.program_id(0)
    chunk = tl.program_id(1)
    temperature = tl.load(laws + ask * 2)
    depth = tl.load(laws + ask * 2 + 1)
    if temperature == 0.0:
        tl.store(totals + ask * chunks + chunk, tl.load(bests + ask * chunks + chunk))
        return
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
        c0, c1, c2, c3 = philox_words(c0, keys + ask * 4, 0)
        words = tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))
        sums = scaled + gumbel_of(words)
        sums = tl.where((token < vocab) & (scaled >= floor), sums, -float("inf"))
        best = tl.max(sums, 0)
        tl.store(totals + place, best)
        tl.store(tokens + place, tl.min(tl.where(sums == best, token, NO_TOKEN), 0))


@triton.jit(do_not_specialize=["asks"])
def settle_kernel(
    totals,
    tokens,
    logits,
    out,
    asks,
    row_stride,
    chunks,
    CHUNKS: tl.constexpr,
):
    """The token of the best chunk of each ask; then of each row of logits, 1 if it is numbers."""
    place = tl.program_id(0)
    if place < asks:
        lanes = tl.arange(0, CHUNKS)
        known = lanes < chunks
        found = tl.load(totals + place * chunks + lanes, mask=known, other=-float("inf"))
        told = tl.load(tokens + place * chunks + lanes, mask=known, other=NO_TOKEN)
        best = tl.max(found, 0)
        tl.store(out + place, tl.min(tl.where(known & (found == best), told, NO_TOKEN), 0))
    else:
        row = (place - asks).to(tl.int64)
        # A node's hidden state is a factor of all its logits.
        first = tl.load(logits + row * row_stride)
        tl.store(out + place, (tl.abs(first) < float("inf")).to(tl.int32))


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
    tokens = _settled(logits, served) if served else None
    rest = iter(sampler.choose_many(logits, others))
    mine = iter([] if tokens is None else to_host(tokens).tolist())
    return [next(mine) if is_served(ask) else next(rest) for ask in asks]


def warm_up(vocab: int, device: torch.device) -> None:
    """Compile the kernels, so that no request waits for that."""
    laws = Sampling(temperature=0.0), Sampling(temperature=1.0)
    choose_many(torch.zeros(1, vocab, device=device), [Ask(0, 0, law) for law in laws])


def _settled(logits: Tensor, asks: Sequence[Ask]) -> Tensor:
    """Queue the choice: int32 tokens of the asks."""
    asked = to_device(torch.from_numpy(laid_out(asks)), logits.device)
    return settled(logits, asked_of(asked), not all(ask.is_greedy for ask in asks))


class Asked(NamedTuple):
    """Questions on the device."""

    rows: Tensor
    """int64 [n]: of logits."""
    keys: Tensor
    """int64 [n, 4]: the seed's lower and upper half, position, branch."""
    laws: Tensor
    """float64 [n, 2]: temperature, and the lowest score that counts."""


WORDS = 7
"""Of eight bytes, that a question takes."""


def settled(logits: Tensor, asked: Asked, sampled: bool, sound_rows: int = 0) -> Tensor:
    """Queue the choice: int32 tokens of the asks, then of so many rows a 1 for each sound one.

    Without `sampled` all temperatures must be 0.
    """
    device, vocab, count = logits.device, logits.shape[1], len(asked.rows)
    chunks, row_stride = ceil_div(vocab, CHUNK), logits.stride(0)
    bests = torch.empty(count, chunks, dtype=torch.float64, device=device)
    tokens = torch.empty(count, chunks, dtype=torch.int32, device=device)
    totals = bests
    grid, shape = (count, chunks), (vocab, row_stride, chunks)
    if count:
        launch(greatest_kernel, grid, logits, asked.rows, bests, tokens, *shape, CHUNK=CHUNK)
    if count and sampled:
        totals = torch.empty_like(bests)
        arguments = logits, *asked, bests, totals, tokens
        sizes = {"CHUNK": CHUNK, "CHUNKS": power_of_two(chunks)}
        launch(keyed_kernel, grid, *arguments, *shape, **sizes)
    out = torch.empty(count + sound_rows, dtype=torch.int32, device=device)
    if len(out):
        arguments = totals, tokens, logits, out, count, row_stride, chunks
        launch(settle_kernel, (len(out),), *arguments, CHUNKS=power_of_two(chunks))
    return out


def laid_out(asks: Sequence[Ask], room: int = 0) -> NDArray[np.int64]:
    """Return int64 [WORDS * n] for `asked_of`: n is `room` or, without it, as many as there are."""
    count = len(asks)
    host = np.zeros(WORDS * (room or count), np.int64)
    rows, keys, laws = asked_of(torch.from_numpy(host))
    rows.numpy()[:count] = [ask.logits_row for ask in asks]
    keys.numpy()[:count] = [
        (law.seed & MASK, law.seed >> 32 & MASK, ask.position, law.branch)
        for ask in asks
        for law in (ask.sampling,)
    ] or np.empty((0, 4))
    laws.numpy()[:count] = [
        (law.temperature, max(-WINDOW_NATS, log(law.min_p)) if law.min_p else -WINDOW_NATS)
        for law in (ask.sampling for ask in asks)
    ] or np.empty((0, 2))
    return host


def asked_of(words: Tensor) -> Asked:
    """Return the parts of what `laid_out` made."""
    count = len(words) // WORDS
    rows, keys, laws = words.split([count, 4 * count, 2 * count])
    return Asked(rows, keys.view(count, 4), laws.view(torch.float64).view(count, 2))
