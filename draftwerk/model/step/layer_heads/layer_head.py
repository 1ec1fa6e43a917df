"""A draft head that is a decoder layer: it attends to what it has read of the text before.

read     state of token i, token i + 1     what the target's head read, and what followed
guess    token i + 2, then with the layer's own state in the target's place i + 3, ...
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.draft_head.head import Steps
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, HeadWindow, HeadWindows
from draftwerk.model.draft_head.tree import LEVELS, Start
from draftwerk.model.reference.sampler import TopTokens
from draftwerk.model.step.layer_heads.head_chain import HeadChain, grow_chains
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk.speculative.row_parts.feedback import LOSS_NATS, HeadNode


class HeadLayer(Protocol):
    """A layer that is bound to its target."""

    @property
    def vocabulary(self) -> Sequence[int]:
        """The tokens that it can guess, by row of its logits."""
        ...

    def __call__(
        self, batch: Batch, pages: Pages, states: Tensor, tokens: Sequence[int], /
    ) -> tuple[Tensor, Tensor]:
        """Return float32 logits and states [S, hidden] of the batch's outputs."""
        ...


class RankTokens(Protocol):
    """`Backend.top_tokens`."""

    def __call__(self, logits: Tensor, rows: Sequence[int], count: int, /) -> list[TopTokens]: ...


class LayerHead:
    """A `Drafter` that follows sequences; its trees are chains, with rivals at each node."""

    def __init__(
        self, layer: HeadLayer, pages: Pages, rank: RankTokens, windows: HeadWindows
    ) -> None:
        """`pages` have one plane, and the blocks of all windows."""
        self.windows = windows
        self._layer, self._pages, self._rank = layer, pages, rank

    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's draft tree, parents first."""
        served = rows[: self.windows.capacity]
        used = {one.sequence_id: self.windows.use(one.sequence_id, LEVELS) for one in served}

        def guess(
            chains: Sequence[HeadChain], depth: int, looked: int
        ) -> tuple[list[TopTokens], Tensor]:
            windows = [used[chain.start.sequence_id] for chain in chains]
            further = self._guess(chains, windows, depth - 1) if depth else self._read(windows)
            return self._best(further[0], looked), further[1]

        unserved = [()] * (len(rows) - len(served))
        return [*grow_chains(served, guess, budget), *unserved]

    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return the states [n, H] after the tokens, and the `count` best that could follow.

        Nothing is known of the text before.
        """
        logits, after = self._alone(states, tokens)
        best = self._best(logits, count)
        return Steps(
            after,
            [list(tokens) for tokens, _ in best],
            [[-LOSS_NATS * loss for loss in losses] for _, losses in best],
        )

    def _alone(self, states: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        """Read tokens of sequences of their own, as many at once as there is room for."""
        capacity = self.windows.capacity
        parts = [
            self._read([self._passing(-1 - index, *one) for index, one in enumerate(part)])
            for first in range(0, len(tokens), capacity)
            if (part := [*zip(states, tokens, strict=True)][first : first + capacity])
        ]
        self.windows.close(range(-capacity, 0))
        logits, after = zip(*parts, strict=True)
        return torch.cat(logits), torch.cat(after)

    def _passing(self, sequence_id: int, state: Tensor, token: int) -> HeadWindow:
        self.windows.open(sequence_id)
        self.windows.follow(sequence_id, 0, [(state[None], 0)], [token])
        return self.windows.use(sequence_id, 0)

    def _read(self, windows: Sequence[HeadWindow]) -> tuple[Tensor, Tensor]:
        """Read what waits; return logits and states after it, by row."""
        builder, read = BatchBuilder(BLOCK_SIZE), list[tuple[Tensor, int]]()
        for window in windows:
            slot = window.length
            states, tokens = window.take()
            read += states
            _add(builder, tokens, slot, window)
        return self._run(builder, torch.stack([states[row] for states, row in read]))

    def _guess(
        self, chains: Sequence[HeadChain], windows: Sequence[HeadWindow], depth: int
    ) -> tuple[Tensor, Tensor]:
        """Go one guess further, in slots that will be read again."""
        builder = BatchBuilder(BLOCK_SIZE)
        for chain, window in zip(chains, windows, strict=True):
            _add(builder, [chain.said], window.length + depth, window)
        return self._run(builder, torch.stack([chain.state for chain in chains]))

    @torch.inference_mode()
    def _run(self, builder: BatchBuilder, states: Tensor) -> tuple[Tensor, Tensor]:
        return self._layer(
            builder.batch(self._pages.keys.device), self._pages, states, builder.tokens
        )

    def _best(self, logits: Tensor, count: int) -> list[TopTokens]:
        """Return the best tokens after each row, best first."""
        vocabulary = self._layer.vocabulary
        found = self._rank(logits, range(len(logits)), min(count, len(vocabulary)))
        return [(tuple(vocabulary[each] for each in best), lost) for best, lost in found]


def _add(builder: BatchBuilder, tokens: list[int], slot: int, window: HeadWindow) -> None:
    builder.offsets.append((len(builder.tokens), len(tokens), window.first))
    builder.add(tokens, slot, window.blocks, NO_DRAFT, True)
