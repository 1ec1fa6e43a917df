"""The sampling rule over many rows: the fast twin of `model.reference.sampler`, the same tokens."""

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.native.calls.structs import LogprobRequest, SamplingArguments
from draftwerk.model.native.gumbel import SEED_MASK
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.sampler import LOSS_MAX, SamplingRequest, TopTokens, candidates
from draftwerk.speculative.protocol.feedback import LOSS_NATS
from draftwerk.speculative.protocol.rounds import ChosenLogprob

WORD_MASK = 2**32 - 1


class NativeSampler:
    """Chooses tokens from raw float32 logits [S, vocab] on the CPU."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def choose_many(self, logits: Tensor, requests: Sequence[SamplingRequest]) -> list[int]:
        """Return the seeded target's token for each ask."""
        _check_logits(logits)
        arguments = (SamplingArguments * len(requests))()
        for to, request in zip(arguments, requests, strict=True):
            _fill(to, logits, request)
        chosen = (ctypes.c_int32 * len(requests))()
        self._pool.library.sample_many(
            self._pool.handle, arguments, len(requests), logits.shape[1], chosen
        )
        return list(chosen)

    def logprobs(
        self, logits: Tensor, asked: Sequence[tuple[int, int, int]]
    ) -> list[ChosenLogprob]:
        """Return raw log-probabilities for (row, chosen token, alternatives wanted)."""
        chosen, tokens, values = self._report(logits, asked)
        rows = zip(asked, chosen.tolist(), tokens.tolist(), values.tolist(), strict=True)
        return [
            ChosenLogprob(logprob, tuple(zip(best[:count], scores[:count], strict=True)))
            for (_, _, count), logprob, best, scores in rows
        ]

    def rank(self, logits: Tensor, rows: Sequence[int], count: int) -> list[TopTokens]:
        """Return the `count` best tokens of these rows, best first."""
        _, tokens, values = self._report(logits, [(row, 0, count) for row in rows])
        return [
            (tuple(best), tuple(map(_loss, logprobs)))
            for best, logprobs in zip(tokens.tolist(), values.tolist(), strict=True)
        ]

    def _report(
        self, logits: Tensor, asked: Sequence[tuple[int, int, int]]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
        """Return logprobs [n] of the chosen tokens, and the best tokens [n, most] with theirs."""
        _check_logits(logits)
        arguments = (LogprobRequest * len(asked))()
        widest = min(max((count for _, _, count in asked), default=0), logits.shape[1])
        chosen = np.empty(len(asked), np.float64)
        tokens = np.empty((len(asked), widest), np.int32)
        values = np.empty((len(asked), widest), np.float64)
        # Addresses by arithmetic: slicing three arrays a row would take longer than the kernel.
        row_bytes = logits.shape[1] * logits.element_size()
        here, logprob_at = logits.data_ptr(), chosen.ctypes.data
        token_at, value_at = tokens.ctypes.data, values.ctypes.data
        for index, (to, (row, token, count)) in enumerate(zip(arguments, asked, strict=True)):
            _check_range(row, len(logits))
            _check_range(token, logits.shape[1])
            to.logits = here + row * row_bytes
            to.token, to.count = token, min(count, widest)
            to.logprob = logprob_at + index * chosen.itemsize
            to.top_tokens = token_at + index * widest * tokens.itemsize
            to.top_logprobs = value_at + index * widest * values.itemsize
        self._pool.library.report_logprobs(
            self._pool.handle, arguments, len(asked), logits.shape[1]
        )
        return chosen, tokens, values

    def candidates(
        self, logits: Tensor, asked: Sequence[tuple[SamplingRequest, int]]
    ) -> list[tuple[tuple[int, float], ...]]:
        """Return the best next tokens of each (ask, count); torch does all but the plain ones."""
        plain = [(request.logits_row, 0, count) for request, count in asked if request.is_plain]
        other = [one for one in asked if not one[0].is_plain]
        fast, slow = iter(self.logprobs(logits, plain)), iter(candidates(logits, other))
        return [next(fast).top if request.is_plain else next(slow) for request, _ in asked]


def _loss(logprob: float) -> int:
    """Return `losses_of` one log-probability; few are asked for, so arrays would take longer."""
    return round(min(max(0.0, logprob * (-1 / LOSS_NATS)), LOSS_MAX))


def _fill(to: SamplingArguments, logits: Tensor, request: SamplingRequest) -> None:
    _check_range(request.logits_row, len(logits))
    sampling = request.sampling
    to.logits = logits.data_ptr() + request.logits_row * logits.shape[1] * logits.element_size()
    to.temperature, to.top_p, to.min_p = sampling.temperature, sampling.top_p, sampling.min_p
    to.seed, to.branch = sampling.seed & SEED_MASK, sampling.branch & WORD_MASK
    to.position, to.top_k = request.position, sampling.top_k
    if request.logit_edits is not None and len(request.logit_edits.tokens):
        logit_edits = request.logit_edits
        _check_range(int(logit_edits.tokens.min()), logits.shape[1])
        _check_range(int(logit_edits.tokens.max()), logits.shape[1])
        to.edit_count = len(logit_edits.tokens)
        to.edit_tokens = logit_edits.tokens.ctypes.data
        to.edit_rates = logit_edits.rates.ctypes.data
        to.edit_losses = logit_edits.losses.ctypes.data
        to.edit_biases = logit_edits.biases.ctypes.data
    if request.allowed is not None:
        to.allowed = _mask_address(request.allowed, logits.shape[1])


def _mask_address(mask: NDArray[np.int32], vocab_size: int) -> int:
    contiguous = mask.flags.c_contiguous
    if mask.dtype != np.int32 or not contiguous or len(mask) * 32 < vocab_size:
        raise ValueError("an allowed mask must be contiguous int32 words covering the vocabulary")
    return mask.ctypes.data


def _check_logits(logits: Tensor) -> None:
    on_cpu = logits.device.type == "cpu" and logits.is_contiguous()
    if logits.dtype != torch.float32 or logits.dim() != 2 or not on_cpu:
        raise ValueError("logits must be a contiguous float32 matrix on the CPU")


def _check_range(index: int, end: int) -> None:
    if not 0 <= index < end:
        raise ValueError(f"{index} is outside 0 .. {end}")
