"""The sampling rule over many rows: the fast twin of `model.reference.sampler`, the same tokens."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.native.calls.structs import (
    DISTRIBUTION,
    DraftWalk,
    LogitQuestions,
    LogprobRequest,
    SamplingArguments,
)
from draftwerk.model.native.gumbel import SEED_MASK
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.sampler import LOSS_MAX, SamplingRequest, TopTokens, candidates
from draftwerk.speculative.rounds import Draft
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.feedback import LOSS_NATS

FLOAT_BYTES = 4
WORD_MASK = 2**32 - 1
BROKEN = -2
"""As in source/sampling/answers.h: the row's logits are not finite."""


@dataclass(slots=True)
class _LogitRows:
    """Where rows of logits are; of a tensor it takes longer to learn than a row's arguments do."""

    address: int
    count: int
    vocab: int

    def at(self, row: int) -> int:
        """Return the address of a row."""
        _check_range(row, self.count)
        return self.address + row * self.vocab * FLOAT_BYTES


def _rows(logits: Tensor) -> _LogitRows:
    on_cpu = logits.device.type == "cpu" and logits.is_contiguous()
    if logits.dtype != torch.float32 or logits.dim() != 2 or not on_cpu:
        raise ValueError("logits must be a contiguous float32 matrix on the CPU")
    return _LogitRows(logits.data_ptr(), *logits.shape)


class NativeSampler:
    """Chooses tokens from raw float32 logits [S, vocab] on the CPU."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def choose_many(self, logits: Tensor, requests: Sequence[SamplingRequest]) -> list[int]:
        """Return the seeded target's token for each ask."""
        rows = _rows(logits)
        arguments = (SamplingArguments * len(requests))()
        for to, request in zip(arguments, requests, strict=True):
            _fill(to, rows, request)
        chosen = (ctypes.c_int32 * len(requests))()
        self._pool.library.sample_many(
            self._pool.handle, arguments, len(requests), rows.vocab, chosen
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
        return self.answer(logits, (), rows, count)[1]

    def answer(
        self,
        logits: Tensor,
        drafts: Sequence[tuple[SamplingRequest, Draft]],
        ranked: Sequence[int],
        count: int,
    ) -> tuple[list[int], list[TopTokens]]:
        """Follow each draft as far as it is right, and rank the tokens of rows, in one call.

        A draft comes with the request at its root, the row of logits before those of its nodes.
        Returns for each row of logits the token, -1 where no walk came by, or `BROKEN`; and the
        `count` best tokens of the rows that are `ranked`.
        """
        rows = _rows(logits)
        for row in ranked:
            _check_range(row, rows.count)
        count = min(count, rows.vocab)
        walks = (DraftWalk * len(drafts))()
        nodes = [_fill_walk(to, rows, *draft) for to, draft in zip(walks, drafts, strict=True)]
        best = (ctypes.c_int32 * (2 * count * len(ranked)))()
        chosen, wanted = (ctypes.c_int32 * rows.count)(), (ctypes.c_int32 * len(ranked))(*ranked)
        asked = LogitQuestions(rows.address, rows=rows.count, vocab=rows.vocab)
        asked.walks, asked.walk_count = ctypes.addressof(walks), len(drafts)
        asked.ranked, asked.ranked_count = ctypes.addressof(wanted), len(ranked)
        asked.chosen, asked.best = ctypes.addressof(chosen), ctypes.addressof(best)
        asked.losses, asked.best_count = asked.best + ctypes.sizeof(best) // 2, count
        asked.loss_nats, asked.loss_max = LOSS_NATS, LOSS_MAX
        self._pool.library.answer_questions(self._pool.handle, asked)
        del nodes  # the call has read them
        return chosen[:], _top_tokens(best[:], count)

    def _report(
        self, logits: Tensor, asked: Sequence[tuple[int, int, int]]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
        """Return logprobs [n] of the chosen tokens, and the best tokens [n, most] with theirs."""
        rows = _rows(logits)
        arguments = (LogprobRequest * len(asked))()
        widest = min(max((count for _, _, count in asked), default=0), rows.vocab)
        chosen = np.empty(len(asked), np.float64)
        tokens = np.empty((len(asked), widest), np.int32)
        values = np.empty((len(asked), widest), np.float64)
        # Addresses by arithmetic: slicing three arrays a row would take longer than the kernel.
        logprob_at = chosen.ctypes.data
        token_at, value_at = tokens.ctypes.data, values.ctypes.data
        for index, (to, (row, token, count)) in enumerate(zip(arguments, asked, strict=True)):
            _check_range(token, rows.vocab)
            to.logits = rows.at(row)
            to.token, to.count = token, min(count, widest)
            to.logprob = logprob_at + index * chosen.itemsize
            to.top_tokens = token_at + index * widest * tokens.itemsize
            to.top_logprobs = value_at + index * widest * values.itemsize
        self._pool.library.report_logprobs(self._pool.handle, arguments, len(asked), rows.vocab)
        return chosen, tokens, values

    def candidates(
        self, logits: Tensor, asked: Sequence[tuple[SamplingRequest, int]]
    ) -> list[tuple[tuple[int, float], ...]]:
        """Return the best next tokens of each (ask, count); torch does all but the plain ones."""
        plain = [(request.logits_row, 0, count) for request, count in asked if request.is_plain]
        other = [one for one in asked if not one[0].is_plain]
        fast, slow = iter(self.logprobs(logits, plain)), iter(candidates(logits, other))
        return [next(fast).top if request.is_plain else next(slow) for request, _ in asked]


def _top_tokens(numbers: list[int], count: int) -> list[TopTokens]:
    """Return rows of `count` tokens with their losses, which come behind all tokens."""
    half = len(numbers) // 2
    return [
        (tuple(numbers[at : at + count]), tuple(numbers[half + at : half + at + count]))
        for at in range(0, half, max(count, 1))
    ]


def _fill_walk(
    to: DraftWalk, rows: _LogitRows, root: SamplingRequest, draft: Draft
) -> ctypes.Array[ctypes.c_int32]:
    """Fill in a row's draft; return the nodes, which must live until they are read."""
    count = len(draft.tokens)
    _check_range(root.logits_row + count, rows.count)
    _fill(to.root, rows, root)
    nodes = (ctypes.c_int32 * (2 * count))(*draft.tokens, *draft.parents)
    to.tokens = ctypes.addressof(nodes)
    to.parents = to.tokens + ctypes.sizeof(nodes) // 2
    to.nodes, to.first = count, root.logits_row
    return nodes


def _fill(to: SamplingArguments, rows: _LogitRows, request: SamplingRequest) -> None:
    sampling = request.sampling
    to.logits = rows.at(request.logits_row)
    for name in DISTRIBUTION:
        setattr(to, name, getattr(sampling, name))
    to.seed, to.branch = sampling.seed & SEED_MASK, sampling.branch & WORD_MASK
    to.position, to.top_k = request.position, sampling.top_k
    if request.logit_edits is not None and len(request.logit_edits.tokens):
        logit_edits = request.logit_edits
        _check_range(int(logit_edits.tokens.min()), rows.vocab)
        _check_range(int(logit_edits.tokens.max()), rows.vocab)
        to.edit_count = len(logit_edits.tokens)
        to.edit_tokens = logit_edits.tokens.ctypes.data
        to.edit_rates = logit_edits.rates.ctypes.data
        to.edit_losses = logit_edits.losses.ctypes.data
        to.edit_biases = logit_edits.biases.ctypes.data
    if request.allowed is not None:
        to.allowed = _mask_address(request.allowed, rows.vocab)


def _mask_address(mask: NDArray[np.int32], vocab_size: int) -> int:
    contiguous = mask.flags.c_contiguous
    if mask.dtype != np.int32 or not contiguous or len(mask) * 32 < vocab_size:
        raise ValueError("an allowed mask must be contiguous int32 words covering the vocabulary")
    return mask.ctypes.data


def _check_range(index: int, end: int) -> None:
    if not 0 <= index < end:
        raise ValueError(f"{index} is outside 0 .. {end}")
