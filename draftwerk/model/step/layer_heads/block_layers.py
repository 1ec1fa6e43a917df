"""A DFlash drafter as a draft head: one pass over a block of masks guesses all of its tokens.

pages    keys and values of committed positions, of what the target's layers came to there
block    last token | mask | mask | ...     attends to the pages and to itself
guesses             | 1    | 2    | ...     a chain, with rivals at each node
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from draftwerk.model.batch.batch import Pages
from draftwerk.model.draft_head.head import Steps
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, HeadWindow, HeadWindows
from draftwerk.model.draft_head.tree import BEST, LOOKED, Start
from draftwerk.model.reference.rotation import Rotaries, Rotation
from draftwerk.model.step.layer_heads.eagle import RowProduct
from draftwerk.model.step.layer_heads.head_chain import HeadChain
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.speculative.protocol.feedback import HeadNode


class BlockLayer(NamedTuple):
    """One layer's products, and norms in float32."""

    query: RowProduct
    keys_values: RowProduct
    output: RowProduct
    gate_up: RowProduct
    down: RowProduct
    attention_norm: Tensor
    ffn_norm: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    is_causal: bool
    """Whether a token of the block sees those before it alone."""
    window: int
    """Positions that a token sees before and with itself; 0 for all."""


class BlockStack(NamedTuple):
    """A drafter bound to its target."""

    layers: Sequence[BlockLayer]
    fc: RowProduct
    context_norm: Tensor
    norm: Tensor
    lm_head: RowProduct
    vocabulary: Sequence[int]
    """The tokens that it can guess, by row of its logits."""
    embed: Callable[[Sequence[int]], Tensor]
    """The target's embeddings, scaled, in float32."""
    rotaries: Rotaries
    epsilon: float
    mask_token: int
    size: int
    """Tokens of a block."""


class BlockHead:
    """A `Drafter` that follows sequences."""

    def __init__(
        self, stack: BlockStack, pages: Pages, rank: RankTokens, windows: HeadWindows
    ) -> None:
        """`pages` have a plane for each layer, and the blocks of all windows."""
        self.windows = windows
        windows.read_now = lambda sequence_id: self._read([windows.use(sequence_id, 0)])
        self._stack, self._pages, self._rank = stack, pages, rank

    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's nodes, parents first, for at most `budget` tokens ahead."""
        served = rows[: self.windows.capacity]
        used = [self.windows.use(one.sequence_id, 0) for one in served]
        count = min(budget, self._stack.size - 1)
        self._read(used)
        logits = self._guess(served, used, count)
        looked = LOOKED if any(one.noise.sampled for one in served) else BEST
        looked = min(looked, len(self._stack.vocabulary))
        best = iter(self._rank(logits, range(len(logits)), looked))
        chains = [HeadChain(one) for one in served]
        for chain in chains:
            for _ in range(count):
                tokens, losses = next(best)
                named = [self._stack.vocabulary[token] for token in tokens]
                chain.extend(chain.state, named, losses)
        return [*(tuple(chain.nodes) for chain in chains), *[()] * (len(rows) - len(served))]

    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return the states [n, H] and no tokens: a search's texts are not followed."""
        return Steps(states, [[] for _ in tokens], [[] for _ in tokens])

    @torch.inference_mode()
    def _read(self, windows: Sequence[HeadWindow]) -> None:
        """Write keys and values of what waits."""
        read, positions, slots = list[tuple[Tensor, int]](), list[int](), list[int]()
        for window in windows:
            first = window.length
            states, _ = window.take()
            read += states
            positions += range(window.first + first, window.first + window.length)
            slots += (_slot(window, each) for each in range(first, window.length))
        if not read:
            return
        stack, states = self._stack, torch.stack([own[row] for own, row in read]).float()
        context = _normed(stack.fc(states), stack.context_norm, stack.epsilon)
        (turn,) = stack.rotaries.at(torch.tensor(positions), torch.float32)
        for plane, layer in enumerate(stack.layers):
            key, value = self._keys_values(layer, context, turn)
            for pages, own in ((self._pages.keys, key), (self._pages.values, value)):
                pages[plane].flatten(0, 1)[slots] = own.to(pages.dtype)

    @torch.inference_mode()
    def _guess(self, rows: Sequence[Start], windows: Sequence[HeadWindow], count: int) -> Tensor:
        """Return logits of the first `count` masks of each row."""
        stack = self._stack
        masks = [stack.mask_token] * (stack.size - 1)
        hidden = stack.embed([token for row in rows for token in (row.token, *masks)])
        starts = [window.first + window.length for window in windows]
        positions = [start + index for start in starts for index in range(stack.size)]
        (turn,) = stack.rotaries.at(torch.tensor(positions), torch.float32)
        for plane, layer in enumerate(stack.layers):
            normed = _normed(hidden, layer.attention_norm, stack.epsilon)
            attended = self._attend(plane, layer, normed, turn, windows)
            hidden = hidden + layer.output(attended)
            normed = _normed(hidden, layer.ffn_norm, stack.epsilon)
            gate, up = layer.gate_up(normed).chunk(2, -1)
            hidden = hidden + layer.down(silu(gate) * up)
        guesses = hidden.view(len(rows), stack.size, -1)[:, 1 : 1 + count].flatten(0, 1)
        return stack.lm_head(_normed(guesses, stack.norm, stack.epsilon))

    def _attend(
        self,
        plane: int,
        layer: BlockLayer,
        normed: Tensor,
        turn: Rotation,
        windows: Sequence[HeadWindow],
    ) -> Tensor:
        """Return what each token of the blocks comes to [T, heads * D]."""
        key, value = self._keys_values(layer, normed, turn)
        query = self._turned(layer.query(normed), layer.query_norm, turn, key.shape[-1])
        size, found = self._stack.size, list[Tensor]()
        for index, window in enumerate(windows):
            own = slice(index * size, (index + 1) * size)
            before = window.length, window.blocks[: -(-window.length // BLOCK_SIZE)]
            keys, values = (
                torch.cat([_committed(pages[plane], *before), block[own]])
                for pages, block in ((self._pages.keys, key), (self._pages.values, value))
            )
            seen = _seen(window.length, size, layer)
            found.append(_attended(query[own], keys, values, seen))
        return torch.cat(found)

    def _keys_values(
        self, layer: BlockLayer, read: Tensor, turn: Rotation
    ) -> tuple[Tensor, Tensor]:
        kv_heads, size = self._pages.keys.shape[3:]
        key, value = layer.keys_values(read).split(kv_heads * size, 1)
        return self._turned(key, layer.key_norm, turn, size), value.unflatten(1, (-1, size))

    def _turned(self, rows: Tensor, norm: Tensor | None, turn: Rotation, size: int) -> Tensor:
        heads = rows.unflatten(1, (-1, size))
        heads = heads if norm is None else _normed(heads, norm, self._stack.epsilon)
        return self._stack.rotaries.turned(heads, turn)


def _normed(values: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return rms_norm(values, values.shape[-1:], weight, epsilon)


def _slot(window: HeadWindow, index: int) -> int:
    """Return where a window's slot is, in the flattened (block, offset) axis."""
    block, offset = divmod(index, BLOCK_SIZE)
    return window.blocks[block] * BLOCK_SIZE + offset


def _committed(pages: Tensor, length: int, blocks: tuple[int, ...]) -> Tensor:
    """Return keys or values of a window in float32 [length, kv_heads, D]."""
    return pages[list(blocks)].flatten(0, 1)[:length].float()


def _seen(length: int, size: int, layer: BlockLayer) -> Tensor:
    """Return which of the slots each token of a block sees [size, length + size]."""
    slots, tokens = torch.arange(length + size), torch.arange(length, length + size)[:, None]
    seen = torch.ones(size, length + size, dtype=torch.bool)
    if layer.is_causal:
        seen &= slots <= tokens
    if layer.window:
        seen &= (slots - tokens).abs() < layer.window
    return seen


def _attended(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(D)) v of one row [size, heads * D]; all are float32."""
    count, heads, size = query.shape
    grouped = query.view(count, keys.shape[1], heads // keys.shape[1], size)
    scores = torch.einsum("nkgd,lkd->kgnl", grouped, keys) * size**-0.5
    shares = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("kgnl,lkd->nkgd", shares, values).reshape(count, -1)
