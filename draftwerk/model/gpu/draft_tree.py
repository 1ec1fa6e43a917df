"""A draft head's trees of guesses, grown on the device: all levels queued at once, one way back.

states, tokens --head--> candidates --rank with the request's noise--> nodes of the level
                                                      '--likeliest--> states, tokens of the next

The twin is `model.draft_head.tree.build_trees`. A tree of so many rows is one graph.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.layout import BEST_TOKENS, NO_NODE
from draftwerk.model.draft_head.tree import (
    BEST,
    CHANCE_MIN,
    EXPANDED,
    LAYOUT,
    LEVELS,
    LOOKED,
    Start,
    within,
)
from draftwerk.model.gpu.draft_head import GpuDraftHead
from draftwerk.model.gpu.graphs import ROWS, Recorder
from draftwerk.model.gpu.kernels.launch import launch, power_of_two
from draftwerk.model.gpu.sampler import gumbel_of, philox_words
from draftwerk.model.reference.sampler import LOSS_MAX
from draftwerk.model.reference.transfer import to_device, to_host
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk.speculative.row_parts.feedback import LOSS_NATS, HeadNode
from draftwerk.speculative.sampling import MASK
from draftwerk.speculative.sources.sequence_noise import SequenceNoise

LANES = power_of_two(LOOKED)
WORDS = 6
"""The words, of eight bytes, that a row's question takes."""
BEST_: tl.constexpr = tl.constexpr(BEST)
EXPANDED_: tl.constexpr = tl.constexpr(EXPANDED)
SLOTS_: tl.constexpr = tl.constexpr(LAYOUT.slots)
FIELDS_: tl.constexpr = tl.constexpr(LAYOUT.fields)
TOKENS_: tl.constexpr = tl.constexpr(BEST_TOKENS)
LOSSES_: tl.constexpr = tl.constexpr(LAYOUT.losses)
NO_NODE_: tl.constexpr = tl.constexpr(NO_NODE)
LOSS_MAX_: tl.constexpr = tl.constexpr(float(LOSS_MAX))
LOSSES_A_NAT: tl.constexpr = tl.constexpr(1 / LOSS_NATS)
CHANCE_MIN_: tl.constexpr = tl.constexpr(CHANCE_MIN)


# One compiled kernel for all levels, whose tensors lie anywhere in buffers.
@triton.jit(
    do_not_specialize=["count", "depth", "first"],
    do_not_specialize_on_alignment=[
        *("keys", "settings", "tokens", "parents", "chances"),
        *("next_sources", "next_tokens", "next_parents", "next_chances"),
    ],
)
def draft_tree_kernel(
    indices,
    logprobs,
    vocabulary,
    keys,
    settings,
    tokens,
    parents,
    chances,
    found,
    next_sources,
    next_tokens,
    next_parents,
    next_chances,
    count,
    depth,
    first,
    OPEN: tl.constexpr,
    LANES: tl.constexpr,
):
    """One row's level: rank its OPEN tokens' candidates, note them, choose where to go on.

    `settings` is (score of a loss, 1 where there is noise); `first` is the level's first slot.
    Chances are float64, 0 for what is not open.
    """
    # 1. Load what holds for the whole row; `shares` and `named` gather its candidates to expand.
    row = tl.program_id(0)
    lanes = tl.arange(0, LANES)
    real = lanes < count
    child = tl.arange(0, OPEN * EXPANDED_)
    shares = tl.zeros([OPEN * EXPANDED_], tl.float64)
    named = tl.zeros([OPEN * EXPANDED_], tl.int32)
    scale = tl.load(settings + row * 2)
    noisy = tl.load(settings + row * 2 + 1)
    for nth in tl.static_range(OPEN):
        # 2. Load one open token's candidates.
        at = row * OPEN + nth
        chance = tl.load(chances + at)
        index = tl.load(indices + at * count + lanes, mask=real, other=0)
        token = tl.load(vocabulary + index, mask=real, other=-1)
        logprob = tl.load(logprobs + at * count + lanes, mask=real, other=0.0)
        # To the nearest whole number, ties to even: float32 has no others at 2 ** 23.
        loss = (tl.minimum(-logprob * LOSSES_A_NAT, LOSS_MAX_) + 8388608.0) - 8388608.0
        # 3. Score them with the request's noise: lane by lane, each its own counter.
        c0, c1, c2, c3 = philox_words((token >> 2).to(tl.uint32), keys + row * 4, depth)
        word = token & 3
        low = tl.where(word == 0, c0, c1)
        high = tl.where(word == 2, c2, c3)
        noise = gumbel_of(tl.where(word < 2, low, high))
        scores = tl.where(real, scale * loss.to(tl.float64) + noise * noisy, -float("inf"))
        best = tl.max(scores, 0)
        # 4. Note the node, then its best candidates in their order: a maximum at a time.
        to = found + (row * SLOTS_ + first + nth) * FIELDS_
        tl.store(to, tl.where(chance > 0.0, tl.load(parents + at), NO_NODE_))
        tl.store(to + 1, tl.load(tokens + at))
        total = best * 0.0
        for rank in tl.static_range(BEST_):
            top = tl.max(scores, 0)
            winner = tl.max(tl.where(scores == top, token, -1), 0)
            winner = tl.where(top > -float("inf"), winner, -1)
            lost = tl.max(tl.where(token == winner, loss, 0.0), 0)
            tl.store(to + TOKENS_ + rank, winner)
            tl.store(to + LOSSES_ + rank, lost.to(tl.int32))
            weight = tl.exp(top - best)
            total += weight
            if rank < EXPANDED_:
                shares = tl.where(child == nth * EXPANDED_ + rank, weight, shares)
                named = tl.where(child == nth * EXPANDED_ + rank, winner, named)
            scores = tl.where(token == winner, -float("inf"), scores)
        # Weights become chances of the whole path.
        mine = child // EXPANDED_ == nth
        shares = tl.where(mine, chance * (shares / total), shares)
    # 5. Choose the row's likeliest candidates: the next level's open tokens, closed ones last.
    shares = tl.where(shares >= CHANCE_MIN_, shares, 0.0)
    for rank in tl.static_range(EXPANDED_):
        top = tl.max(shares, 0)
        chosen = tl.min(tl.where(shares == top, child, OPEN * EXPANDED_ - 1), 0)
        token = tl.sum(tl.where(child == chosen, named, 0), 0)
        token = tl.where(top > 0.0, token, 0)
        source = chosen // EXPANDED_
        to = row * EXPANDED_ + rank
        tl.store(next_sources + to, row * OPEN + source)
        tl.store(next_tokens + to, token)
        tl.store(next_parents + to, first + source)
        tl.store(next_chances + to, top)
        shares = tl.where(child == chosen, 0.0, shares)


class Level(NamedTuple):
    """The open tokens at one depth, for each row `n` tokens: all [rows, n]."""

    tokens: Tensor
    """int32"""
    parents: Tensor
    """int32: a slot, or -1."""
    chances: Tensor
    """float64: of the path, 0 for what is not open."""


class Buffers:
    """The buffers from which trees of so many rows are grown, and of what is found."""

    def __init__(self, rows: int, hidden: int, device: torch.device) -> None:
        self.rows = rows
        self.states = torch.zeros(rows, hidden, device=device)
        self.sent = torch.zeros(WORDS * rows, dtype=torch.int64, device=device)
        keys, params = self.sent.split([4 * rows, 2 * rows])
        self.keys, self.params = keys.view(rows, 4), params.view(torch.float64)
        self.tokens = torch.zeros(rows, 1, dtype=torch.int32, device=device)
        self.roots = torch.full((rows, 1), -1, dtype=torch.int32, device=device)
        self.certain = torch.ones(rows, 1, dtype=torch.float64, device=device)
        self.found = torch.zeros(
            rows, LAYOUT.slots, LAYOUT.fields, dtype=torch.int32, device=device
        )

    def send(self, keyed: Sequence[tuple[SequenceNoise, int]]) -> None:
        """Queue one copy of keys and positions; rows beyond those hold anything."""
        count, rows = len(keyed), self.rows
        host = np.zeros(WORDS * rows, np.int64)
        keys, params = np.split(host, [4 * rows])
        keys.reshape(rows, 4)[:count] = [
            (noise.seed & MASK, noise.seed >> 32 & MASK, position, noise.branch)
            for noise, position in keyed
        ]
        params.view(np.float64).reshape(rows, 2)[:count] = [
            (noise.scale, noise.sampled) for noise, _ in keyed
        ]
        self.sent.copy_(to_device(torch.from_numpy(host), self.sent.device))


class GpuDraftTree(GpuDraftHead):
    """A draft head that grows whole trees."""

    def __init__(self, head: DraftHead, weights: Weights) -> None:
        super().__init__(head, weights)
        self.recorded: dict[int, tuple[Buffers, Callable[[], Tensor]]] = {}
        self.rows_max = ROWS[-1]

    def record(
        self, rows: Iterable[int], recorder: Recorder, progress: OnProgress = lambda _: None
    ) -> None:
        """Record a tree for each of these counts of rows; more rows grow theirs in parts."""
        for count in sorted(rows, reverse=True):
            progress(f"recording draft trees of {count} rows")
            buffers, grow = self._unrecorded(count)
            self.recorded[count] = buffers, recorder.record(grow)
        self.rows_max = max(self.recorded)

    @torch.inference_mode()
    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's nodes, parents first."""
        if not rows:
            return []
        said = to_device(torch.tensor([one.token for one in rows]), self.device)
        states = torch.stack([one.state for one in rows])
        found = self.queue(states, said, [(one.noise, one.position) for one in rows])
        trees = LAYOUT.unpack(to_host(found).flatten().tolist())
        return [within(each, budget) for each in trees]

    @torch.inference_mode()
    def queue(
        self,
        states: Tensor,
        said: Tensor,
        keyed: Sequence[tuple[SequenceNoise, int]],
        ahead: Tensor | None = None,
    ) -> Tensor:
        """Queue trees behind states [n, H] and the tokens said there; return them, int32 [n, ...].

        `keyed` is each row's key and the position of the next token, which is so far `ahead` if
        only the device knows.
        """
        parts = [
            self._queued(
                states[at : at + self.rows_max],
                said[at : at + self.rows_max],
                keyed[at : at + self.rows_max],
                None if ahead is None else ahead[at : at + self.rows_max],
            )
            for at in range(0, len(keyed), self.rows_max)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _queued(
        self,
        states: Tensor,
        said: Tensor,
        keyed: Sequence[tuple[SequenceNoise, int]],
        ahead: Tensor | None,
    ) -> Tensor:
        count = len(keyed)
        fitting = [rows for rows in self.recorded if rows >= count]
        buffers, grow = self.recorded[min(fitting)] if fitting else self._unrecorded(count)
        buffers.send(keyed)
        buffers.states[:count] = states
        # A broken row's is no token; its tree is not read.
        buffers.tokens[:count, 0] = said.clamp(0, len(self.embedding) - 1)
        if ahead is not None:
            buffers.keys[:count, 2] += ahead
        grow()
        # The buffer may be written again before this is awaited.
        return buffers.found[:count].clone()

    def _unrecorded(self, rows: int) -> tuple[Buffers, Callable[[], Tensor]]:
        buffers = Buffers(rows, self.embedding.shape[1], self.device)
        return buffers, lambda: self._grown(buffers)

    @torch.inference_mode()
    def _grown(self, buffers: Buffers) -> Tensor:
        """Grow all levels; return where the nodes are."""
        rows, first, states = buffers.rows, 0, buffers.states
        level = Level(buffers.tokens, buffers.roots, buffers.certain)
        for depth in range(LEVELS):
            after, indices, logprobs = self.step(states, level.tokens.flatten(), LOOKED)
            opened = level.tokens.shape[1]
            sources, tokens, parents = torch.empty(
                3, rows, EXPANDED, dtype=torch.int32, device=self.device
            )
            following = Level(tokens, parents, torch.empty_like(tokens, dtype=torch.float64))
            launch(
                draft_tree_kernel,
                (rows,),
                indices,
                logprobs,
                self.vocabulary,
                buffers.keys,
                buffers.params,
                *level,
                buffers.found,
                sources,
                *following,
                indices.shape[1],
                depth,
                first,
                OPEN=opened,
                LANES=LANES,
                num_warps=1,
            )
            level, first = following, first + opened
            if depth + 1 < LEVELS:
                states = after[sources.flatten()]
        return buffers.found
