"""Recurrent layers, one token after another: any cut, batch or tree gives the same state.

Of a value head the state is a matrix S [key_size, value_size]. A token decays it, and then changes
it along the token's key k. By the gated delta rule it changes what S gives for k towards the
token's value v (Yang et al., arXiv 2412.06464); Mamba-2 adds the value (Dao and Gu, arXiv
2405.21060):

    delta    S = e^g S;    S = S + k (beta (v - k S))^T;    o = q S
    mamba    S = e^(A dt) S;    S = S + k (dt v)^T;         o = q S + D v

Inputs come through a short convolution, so a state has those of the tokens before it as well. A row
reads one slot and writes another. Nodes of a tree go on from their parents, and leave their inputs:
`advance` takes the state along the path that was accepted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.checkpoint.recurrent_layers import STATE_HEADER, Recurrence
from draftwerk.model.checkpoint.weights import RecurrentWeights
from draftwerk.model.reference.tiled_products import by_tiles

NORM_EPS = 1e-6
"""The epsilon of the lengths of queries and keys."""


class LayerState(NamedTuple):
    """What one layer has come to."""

    matrices: Tensor
    """[value heads, key_size, value_size], float32."""
    inputs: Tensor
    """[kernel size - 1, channels], of the tokens before, the last one last."""


class TokenInputs(NamedTuple):
    """Inputs of tokens [T], before the convolution."""

    channels: Tensor
    beta: Tensor
    """[T, value heads], as the decay: of Mamba-2 the steps dt."""
    decay: Tensor
    """The decay of the state, in float32."""
    skip: Tensor | None
    """[value heads], the layer's: how much of a token's values its outcome has beside."""


class RecurrentLayers:
    """The recurrent layers of a model, over slots of states."""

    def __init__(self, rule: Recurrence, tile: int = 0) -> None:
        """Outputs are normed `tile` tokens at a time, 0 for all at once."""
        self._rule, self._tile = rule, tile
        self._is_mamba = rule.rule == "mamba"
        self._kept: dict[int, tuple[Tensor, TokenInputs]] = {}
        """The latest batch's, by number among such layers: taps and inputs."""

    def mix(
        self,
        number: int,
        taps: Tensor,
        weights: RecurrentWeights,
        inputs: Tensor,
        rows: Sequence[BatchState],
        slots: Tensor | None,
        eps: float,
    ) -> Tensor:
        """Return what each token comes to [T, width]; rows' states are written.

        `inputs` are those of all tokens, [T, sum of the rule's rows].
        """
        channels, gates, *steps = inputs.split(self._rule.rows, dim=1)
        found = TokenInputs(channels, *self._rates(weights, *steps), weights.skip)
        self._kept[number] = taps, found
        shape = len(inputs), self._rule.value_heads, self._rule.value_size
        out = torch.zeros(shape, dtype=torch.float32, device=inputs.device)
        for row in rows:
            self._scan(number, taps, found, row, slots, out)
        if weights.skip is None:
            return self._gated(out.to(inputs.dtype), gates, weights.norm, eps)
        return self._normed_in_groups(out, gates, weights.norm, eps)

    def _rates(self, weights: RecurrentWeights, *steps: Tensor) -> tuple[Tensor, Tensor]:
        """Return how much tokens write, and how much of the state they keep."""
        if self._is_mamba:
            (step,) = steps
            step = softplus(step + weights.step_bias.to(step.dtype)).float()
            return step, (weights.decay * step).exp()
        beta, decay = steps
        step = softplus(decay.float() + weights.step_bias)
        return beta.sigmoid().float(), (weights.decay * step).exp()

    def _scan(
        self,
        number: int,
        taps: Tensor,
        inputs: TokenInputs,
        row: BatchState,
        slots: Tensor | None,
        out: Tensor,
    ) -> None:
        state = self._read(number, slots, row.source, inputs.channels)
        for index in range(row.count):
            state, out[row.first + index] = self._step(state, taps, inputs, row.first + index)
            self._save(number, slots, row, row.start + index + 1, state)
        self._write(number, slots, row.target, row.start + row.count, state)
        before = [state]
        for node, parent in enumerate(row.parents):
            at = row.first + row.count + node
            state, out[at] = self._step(before[parent + 1], taps, inputs, at)
            before.append(state)

    def _step(
        self, state: LayerState, taps: Tensor, inputs: TokenInputs, at: int
    ) -> tuple[LayerState, Tensor]:
        """Return the state behind a token, and what its heads come to [value heads, value_size]."""
        rule = self._rule
        window = torch.cat([state.inputs, inputs.channels[at][None]])
        sums = (window.float() * taps[: rule.kernel_size].float()).sum(0)
        sums = sums + taps[rule.kernel_size :].float().sum(0)  # biases, if there are some
        mixed = silu(sums.to(window.dtype)).float()
        width = rule.key_heads * rule.key_size
        query, key, value = mixed.split([width, width, rule.width])
        query, key = (self._by_value_head(each.view(rule.key_heads, -1)) for each in (query, key))
        matrices = state.matrices * inputs.decay[at][:, None, None]
        change = value = value.view(rule.value_heads, -1)
        if not self._is_mamba:
            query, key = _normed(query) / rule.key_size**0.5, _normed(key)
            change = change - (matrices * key[..., None]).sum(1)
        change = change * inputs.beta[at][:, None]
        matrices = matrices + key[..., None] * change[:, None]
        out = (matrices * query[..., None]).sum(1)
        out = out if inputs.skip is None else out + inputs.skip[:, None] * value
        return LayerState(matrices, window[1:]), out

    def _by_value_head(self, heads: Tensor) -> Tensor:
        group = self._rule.value_heads // self._rule.key_heads
        return (
            heads.repeat(group, 1) if self._rule.takes_turns else heads.repeat_interleave(group, 0)
        )

    def _gated(self, out: Tensor, gates: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return outputs of heads normed, rounded, and gated in float32."""
        normed = weight * self._normed_by_tiles(out.float(), eps).to(out.dtype)
        return (normed * silu(gates.float()).view_as(normed)).to(out.dtype).flatten(1)

    def _normed_in_groups(self, out: Tensor, gates: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return outputs gated and then normed, those of each key head together, rounded once."""
        wide = out.flatten(1) * silu(gates.float())
        groups = wide.view(len(wide), self._rule.key_heads, -1)
        normed = self._normed_by_tiles(groups, eps)
        return (weight.float() * normed.flatten(1)).to(gates.dtype)

    def _normed_by_tiles(self, wide: Tensor, eps: float) -> Tensor:
        def normed(rows: Tensor) -> Tensor:
            return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + eps)

        return by_tiles(normed, wide, self._tile)

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], slots: Tensor) -> None:
        """Take the states that rows of the latest batch have written along accepted nodes."""
        for number, (taps, inputs) in self._kept.items():
            for row, path in rows:
                state, end = self._read(number, slots, row.target, inputs.channels), row.count
                for depth, node in enumerate(path, row.count + 1):
                    state, _ = self._step(state, taps, inputs, row.first + row.count + node)
                    self._save(number, slots, row, row.start + depth, state)
                    end = depth
                self._write(number, slots, row.target, row.start + end, state)

    def _read(self, number: int, slots: Tensor | None, slot: int, like: Tensor) -> LayerState:
        """Return a layer's state in a slot; without one, that before the first token."""
        rule = self._rule
        shape = rule.value_heads, rule.key_size, rule.value_size
        if slot < 0 or slots is None:
            none = like.new_zeros(rule.kernel_size - 1, rule.channels)
            return LayerState(like.new_zeros(shape, dtype=torch.float32), none)
        held = self._of_layer(number, slots, slot)
        inputs = (
            held[-(rule.kernel_size - 1) * rule.channels :] if rule.kernel_size > 1 else held[:0]
        )
        matrices = held[: held.numel() - inputs.numel()].view(shape)
        return LayerState(matrices.clone(), inputs.view(-1, rule.channels).to(like.dtype))

    def _write(
        self, number: int, slots: Tensor | None, slot: int, position: int, state: LayerState
    ) -> None:
        if slot < 0 or slots is None:
            return
        numbers = torch.cat([state.matrices.flatten(), state.inputs.float().flatten()])
        self._of_layer(number, slots, slot).copy_(numbers)
        slots[slot, 0] = position

    def _save(
        self, number: int, slots: Tensor | None, row: BatchState, position: int, state: LayerState
    ) -> None:
        for wanted, slot in row.saves:
            if wanted == position:
                self._write(number, slots, slot, position, state)

    def _of_layer(self, number: int, slots: Tensor, slot: int) -> Tensor:
        size = self._rule.state_size
        return slots[slot, STATE_HEADER + number * size : STATE_HEADER + (number + 1) * size]


def _normed(heads: Tensor) -> Tensor:
    return heads * torch.rsqrt(heads.pow(2).sum(-1, keepdim=True) + NORM_EPS)
