"""A DFlash drafter as a draft head: one pass over a block of masks guesses all of its tokens.

pages    keys and values of committed positions, of what the target's layers came to there
block    last token | mask | mask | ...     attends to the pages and to itself
guesses             | 1    | 2    | ...     a tree, whose best path is the whole block
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from draftwerk.model.batch.batch import Pages
from draftwerk.model.draft_head.head import Steps
from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, HeadWindow, HeadWindows
from draftwerk.model.draft_head.tree import BEST, LOOKED, Start
from draftwerk.model.reference.rotation import Rotaries, Rotation
from draftwerk.model.step.layer_heads.block_paths import BlockGuesses, block_tree
from draftwerk.model.step.layer_heads.eagle import RowProduct
from draftwerk.speculative.row_parts.feedback import HeadNode

if TYPE_CHECKING:
    from draftwerk.model.checkpoint.config import ModelConfig
    from draftwerk.model.checkpoint.dflash_config import DFlashConfig

Part = Callable[[Tensor], Tensor]
"""What a layer adds to rows, of these normed."""
MATRICES = {
    "query": ("self_attn.q_proj",),
    "keys_values": ("self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""A layer's weights that are kept stacked, by what they are called here."""
PARTS = ("input_layernorm", "post_attention_layernorm")
"""A layer's parts, by the norms before them."""


def alone(_: str, part: Part, normed: Tensor, __: int) -> Tensor:
    """Return what a part makes of rows that it is given as they are."""
    return part(normed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStack:
    """A drafter bound to its target."""

    said: "DFlashConfig"
    config: "ModelConfig"
    """A model of its layers."""
    layers: Sequence[Mapping[str, RowProduct]]
    """By `MATRICES`."""
    fc: RowProduct
    lm_head: RowProduct
    norms: Mapping[str, Tensor]
    """By their names in the checkpoint, in float32."""
    guesses: BlockGuesses
    embed: Callable[[Sequence[int]], Tensor]
    """The embeddings of tokens in float32."""
    rotaries: Rotaries
    attend: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """Attention of one row's queries [n, heads, D] to keys and values, of which each sees some."""
    around: Callable[[str, Part, Tensor, int], Tensor] = alone
    """Returns what a part makes of normed rows of blocks of a size, by the name of its norm."""

    def normed(self, values: Tensor, name: str) -> Tensor:
        """Return rows normed; those of heads may have no norm."""
        if (weight := self.norms.get(f"{name}.weight")) is None:
            return values
        return rms_norm(values, values.shape[-1:], weight, self.config.norm_eps)


class BlockHead:
    """A `Drafter` that follows sequences."""

    def __init__(self, stack: BlockStack, pages: Pages, windows: HeadWindows) -> None:
        """`pages` have a plane for each layer, and the blocks of all windows."""
        self.windows = windows
        windows.read_now = lambda sequence_id: self._read([windows.use(sequence_id, 0)])
        self._stack, self._pages = stack, pages

    @torch.inference_mode()
    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's nodes, parents first, for at most `budget` tokens ahead."""
        served = rows[: self.windows.capacity]
        used = [self.windows.use(one.sequence_id, 0) for one in served]
        count = min(budget, self._stack.said.block_size - 1)
        self._read(used)
        states = self._block(served, used)[:, 1 : 1 + count].flatten(0, 1)
        looked = LOOKED if any(one.noise.sampled for one in served) else BEST
        followers = self._stack.guesses(states, self._stack.lm_head(states), looked)
        found = [
            block_tree(one, range(index * count, (index + 1) * count), followers)
            for index, one in enumerate(served)
        ]
        return [*found, *[()] * (len(rows) - len(served))]

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
            slots += (window.slot(each) for each in range(first, window.length))
        if not read:
            return
        states = torch.stack([own[row] for own, row in read]).float()
        context = self._stack.normed(self._stack.fc(states), "hidden_norm")
        turn = self._turn(positions)
        for plane in range(self._stack.config.layer_count):
            key, value = self._keys_values(plane, context, turn)
            for pages, own in ((self._pages.keys, key), (self._pages.values, value)):
                pages[plane].flatten(0, 1)[slots] = own.to(pages.dtype)

    def _block(self, rows: Sequence[Start], windows: Sequence[HeadWindow]) -> Tensor:
        """Return what each token of the rows' blocks comes to [rows, size, H]."""
        stack, size = self._stack, self._stack.said.block_size
        masks = [stack.said.mask_token] * (size - 1)
        hidden = stack.embed([token for row in rows for token in (row.token, *masks)])
        starts = [window.first + window.length for window in windows]
        positions = [start + index for start in starts for index in range(size)]
        turn = self._turn(positions)
        for plane in range(stack.config.layer_count):
            parts = partial(self._attend, plane, turn, windows), partial(self._feed, plane)
            for name, part in zip(PARTS, parts, strict=True):
                norm = f"model.layers.{plane}.{name}"
                hidden = hidden + stack.around(norm, part, stack.normed(hidden, norm), size)
        return stack.normed(hidden, "model.norm").view(len(rows), size, -1)

    def _turn(self, positions: Sequence[int]) -> Rotation:
        at = torch.tensor(positions, device=self._pages.keys.device)
        (turn,) = self._stack.rotaries.at(at, torch.float32)
        return turn

    def _feed(self, plane: int, normed: Tensor) -> Tensor:
        times = self._stack.layers[plane]
        gate, up = times["gate_up"](normed).chunk(2, -1)
        return times["down"](silu(gate) * up)

    def _attend(
        self, plane: int, turn: Rotation, windows: Sequence[HeadWindow], normed: Tensor
    ) -> Tensor:
        """Return what each token of the blocks takes from what it sees [T, H]."""
        key, value = self._keys_values(plane, normed, turn)
        times, size, found = self._stack.layers[plane], self._stack.said.block_size, list[Tensor]()
        query = self._heads(plane, "q", times["query"](normed), turn)
        for index, window in enumerate(windows):
            own = slice(index * size, (index + 1) * size)
            blocks = list(window.blocks[: -(-window.length // BLOCK_SIZE)])
            keys, values = (
                torch.cat([pages[plane, blocks].flatten(0, 1)[: window.length].float(), block[own]])
                for pages, block in ((self._pages.keys, key), (self._pages.values, value))
            )
            seen = self._seen(plane, window.length).to(keys.device)
            found.append(self._stack.attend(query[own], keys, values, seen))
        return times["output"](torch.cat(found).flatten(1))

    def _seen(self, plane: int, length: int) -> Tensor:
        """Return which of the slots each token of a block sees [size, length + size]."""
        size, reach = self._stack.said.block_size, self._stack.config.kind(plane).window
        slots, tokens = torch.arange(length + size), torch.arange(length, length + size)[:, None]
        seen = torch.ones(size, length + size, dtype=torch.bool)
        if self._stack.said.causal[plane]:
            seen &= slots <= tokens
        return seen & ((slots - tokens).abs() < reach) if reach else seen

    def _keys_values(self, plane: int, read: Tensor, turn: Rotation) -> tuple[Tensor, Tensor]:
        """Return keys and values of rows [n, kv_heads, D]."""
        key, value = self._stack.layers[plane]["keys_values"](read).chunk(2, 1)
        return self._heads(plane, "k", key, turn), value.unflatten(1, self._pages.keys.shape[3:])

    def _heads(self, plane: int, kind: str, rows: Tensor, turn: Rotation) -> Tensor:
        """Return queries or keys by head, turned by their positions."""
        heads = rows.unflatten(1, (-1, self._pages.keys.shape[-1]))
        norm = f"model.layers.{plane}.self_attn.{kind}_norm"
        return self._stack.rotaries.rotated(self._stack.normed(heads, norm), turn)
