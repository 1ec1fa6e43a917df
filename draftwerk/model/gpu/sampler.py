"""The seeded target's choice on the device: a keyed argmax over the whole vocabulary.

What it serves is all without edits; those are left to the twin, `model.reference.sampler`, and so
is what `truncated` finds no cut of. Scores and noise are float64 as there. No token is lost to the
window: noise lies between -3.2 and 22.9, so a token 30 nats below the best cannot win.

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
from draftwerk.model.gpu.truncated import UNKNOWN, choose_truncated, is_truncated
from draftwerk.model.reference import sampler
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.reference.transfer import to_device, to_host
from draftwerk.speculative.sampling import MASK, MULTIPLIERS, ROUNDS, WEYL, WINDOW_NATS, Sampling

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
    request = tl.program_id(0)
    chunk = tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    row = tl.load(rows + request).to(tl.int64)
    scores = tl.load(logits + row * row_stride + token, mask=token < vocab, other=-float("inf"))
    best = tl.max(scores, 0)
    first = tl.min(tl.where((scores == best) & (token < vocab), token, NO_TOKEN), 0)
    tl.store(bests + request * chunks + chunk, best.to(tl.float64))
    tl.store(tokens + request * chunks + chunk, first)


# Parts of one buffer lie anywhere: nothing may be compiled again for how they are aligned.
@triton.jit(do_not_specialize_on_alignment=["keys", "settings"])
def keyed_kernel(
    logits,
    rows,
    keys,
    settings,
    bests,
    totals,
    tokens,
    vocab,
    row_stride,
    chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The greatest score plus noise of one chunk; `settings` is (temperature, lowest score,
    and two numbers that are not read).

    At temperature 0 the chunk's greatest logit and its token stay what they are.
    """
    request = tl.program_id(0)
    chunk = tl.program_id(1)
    temperature = tl.load(settings + request * 4)
    depth = tl.load(settings + request * 4 + 1)
    if temperature == 0.0:
        tl.store(totals + request * chunks + chunk, tl.load(bests + request * chunks + chunk))
        return
    chunk_ids = tl.arange(0, CHUNKS)
    known = chunk_ids < chunks
    all_bests = tl.load(bests + request * chunks + chunk_ids, mask=known, other=-float("inf"))
    floor = tl.max(all_bests, 0) / temperature + depth
    index = request * chunks + chunk
    mine = tl.load(bests + index) / temperature
    if mine < floor:
        tl.store(totals + index, -float("inf"))
        tl.store(tokens + index, NO_TOKEN)
    else:
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        row = tl.load(rows + request).to(tl.int64)
        raw = tl.load(logits + row * row_stride + token, mask=token < vocab, other=-float("inf"))
        scaled = raw.to(tl.float64) / temperature
        c0 = (chunk * (CHUNK // 4) + tl.arange(0, CHUNK // 4)).to(tl.uint32)
        c0, c1, c2, c3 = philox_words(c0, keys + request * 4, 0)
        words = tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))
        sums = scaled + gumbel_of(words)
        sums = tl.where((token < vocab) & (scaled >= floor), sums, -float("inf"))
        best = tl.max(sums, 0)
        tl.store(totals + index, best)
        tl.store(tokens + index, tl.min(tl.where(sums == best, token, NO_TOKEN), 0))


@triton.jit(do_not_specialize=["requests"])
def choose_kernel(
    totals,
    tokens,
    logits,
    out,
    requests,
    row_stride,
    chunks,
    CHUNKS: tl.constexpr,
):
    """The token of the best chunk of each request; then for each row of logits, 1 if it is
    finite."""
    index = tl.program_id(0)
    if index < requests:
        lanes = tl.arange(0, CHUNKS)
        known = lanes < chunks
        found = tl.load(totals + index * chunks + lanes, mask=known, other=-float("inf"))
        chunk_tokens = tl.load(tokens + index * chunks + lanes, mask=known, other=NO_TOKEN)
        best = tl.max(found, 0)
        tl.store(out + index, tl.min(tl.where(known & (found == best), chunk_tokens, NO_TOKEN), 0))
    else:
        row = (index - requests).to(tl.int64)
        # A node's hidden state is a factor of all its logits.
        first = tl.load(logits + row * row_stride)
        tl.store(out + index, (tl.abs(first) < float("inf")).to(tl.int32))


def is_served(request: SamplingRequest) -> bool:
    """Whether the request's distribution is computed on the device."""
    return request.logit_edits is None and request.allowed is None


def choose_many(logits: Tensor, requests: Sequence[SamplingRequest]) -> list[int]:
    """Return the seeded target's token for each request, from raw float32 logits [S, vocab]."""
    served = [request for request in requests if is_served(request)]
    tokens = to_host(_queue_choice(logits, served)).tolist() if served else []
    found = {id(request): token for request, token in zip(served, tokens, strict=True)}
    left = [request for request in requests if found.get(id(request), UNKNOWN) == UNKNOWN]
    rest = iter(sampler.choose_many(logits, left))
    return [
        token if (token := found.get(id(request), UNKNOWN)) != UNKNOWN else next(rest)
        for request in requests
    ]


def warm_up(vocab: int, device: torch.device) -> None:
    """Compile the kernels, so that no request waits for that."""
    params = Sampling(temperature=0.0), Sampling(temperature=1.0), Sampling(top_p=0.9)
    choose_many(
        torch.zeros(1, vocab, device=device),
        [SamplingRequest(0, 0, sampling) for sampling in params],
    )


def _queue_choice(logits: Tensor, requests: Sequence[SamplingRequest]) -> Tensor:
    """Queue the choice: int32 tokens of the requests."""
    asked = to_device(torch.from_numpy(packed_requests(requests)), logits.device)
    return queue_choice(logits, unpacked_requests(asked), kind_of(requests))


class DeviceRequests(NamedTuple):
    """Questions on the device."""

    rows: Tensor
    """int64 [n]: of logits."""
    keys: Tensor
    """int64 [n, 4]: the seed's lower and upper half, position, branch."""
    params: Tensor
    """float64 [n, 4]: temperature, the lowest score that counts, top-k and top-p."""


class ChoiceKind(NamedTuple):
    """Work that the most demanding of some requests takes."""

    sampled: bool = True
    """Otherwise all temperatures are 0."""
    truncated: tuple[int, ...] = ()
    """Requests with top-k or top-p, by index."""


def kind_of(requests: Sequence[SamplingRequest]) -> ChoiceKind:
    """Return what requests take."""
    truncated = tuple(at for at, request in enumerate(requests) if is_truncated(request))
    return ChoiceKind(not all(request.is_greedy for request in requests), truncated)


WORDS = 9
"""The words, of eight bytes, that a question takes."""


def queue_choice(
    logits: Tensor, asked: DeviceRequests, kind: ChoiceKind, sound_rows: int = 0
) -> Tensor:
    """Queue the choice: int32 tokens of the requests, then of so many rows a 1 for each sound one.

    A token that only the twin can tell is UNKNOWN.
    """
    device, vocab, count = logits.device, logits.shape[1], len(asked.rows)
    chunks, row_stride = ceil_div(vocab, CHUNK), logits.stride(0)
    bests = torch.empty(count, chunks, dtype=torch.float64, device=device)
    tokens = torch.empty(count, chunks, dtype=torch.int32, device=device)
    totals = bests
    grid, shape = (count, chunks), (vocab, row_stride, chunks)
    if count:
        launch(greatest_kernel, grid, logits, asked.rows, bests, tokens, *shape, CHUNK=CHUNK)
    if count and kind.sampled:
        totals = torch.empty_like(bests)
        arguments = logits, *asked, bests, totals, tokens
        sizes = {"CHUNK": CHUNK, "CHUNKS": power_of_two(chunks)}
        launch(keyed_kernel, grid, *arguments, *shape, **sizes)
    out = torch.empty(count + sound_rows, dtype=torch.int32, device=device)
    if len(out):
        arguments = totals, tokens, logits, out, count, row_stride, chunks
        launch(choose_kernel, (len(out),), *arguments, CHUNKS=power_of_two(chunks))
    if kind.truncated:
        which = to_device(torch.tensor(kind.truncated), device)
        rows, keys, params = (part[which] for part in asked)
        out.index_copy_(0, which, choose_truncated(logits[rows], keys, params))
    return out


def packed_requests(requests: Sequence[SamplingRequest], room: int = 0) -> NDArray[np.int64]:
    """Return int64 [WORDS * n] for `unpacked_requests`: n is `room` or, without it, as many as
    there are."""
    count = len(requests)
    host = np.zeros(WORDS * (room or count), np.int64)
    rows, keys, params = unpacked_requests(torch.from_numpy(host))
    rows.numpy()[:count] = [request.logits_row for request in requests]
    keys.numpy()[:count] = [
        (sampling.seed & MASK, sampling.seed >> 32 & MASK, request.position, sampling.branch)
        for request in requests
        for sampling in (request.sampling,)
    ] or np.empty((0, 4))
    params.numpy()[:count] = [
        (
            sampling.temperature,
            max(-WINDOW_NATS, log(sampling.min_p)) if sampling.min_p else -WINDOW_NATS,
            sampling.top_k,
            sampling.top_p,
        )
        for sampling in (request.sampling for request in requests)
    ] or np.empty((0, 4))
    return host


def unpacked_requests(words: Tensor) -> DeviceRequests:
    """Return the parts of what `packed_requests` made."""
    count = len(words) // WORDS
    rows, keys, params = words.split([count, 4 * count, 4 * count])
    return DeviceRequests(rows, keys.view(count, 4), params.view(torch.float64).view(count, 4))
