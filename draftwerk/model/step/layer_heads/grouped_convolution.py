"""The dynamic convolutions of a DFlash 2: a token of a block takes in those right before it.

    out[i, c] = sum over taps t of (base[side, t, c] + delta[side, t, group of c]) * in[i - t, c]

Of the two sides one is before a part of a layer, one behind it; both `delta` are of what is read
before it. Nothing comes from before the block.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class GroupedConvolution(NamedTuple):
    """The two sides of a layer's part."""

    base: Tensor
    """[2, kernel size, H] float32"""
    projection: Callable[[Tensor], Tensor]
    """To [n, 2 * kernel size * groups]."""
    group_size: int

    def around(self, part: Callable[[Tensor], Tensor], normed: Tensor, size: int) -> Tensor:
        """Return what a part makes of rows [blocks * size, H], convolved before and behind it."""
        _, kernel_size, hidden = self.base.shape
        groups = hidden // self.group_size
        deltas = self.projection(normed).view(-1, size, 2, kernel_size, groups, 1)
        before, behind = (
            self.base[side].view(kernel_size, groups, -1) + deltas[:, :, side] for side in (0, 1)
        )
        return _convolved(part(_convolved(normed, before)), behind)


def _convolved(rows: Tensor, kernels: Tensor) -> Tensor:
    """Return rows mixed with those before them; `kernels` [blocks, size, kernel size, groups,
    width]."""
    blocks, size, kernel_size, groups, _ = kernels.shape
    own = rows.view(blocks, size, groups, -1)
    found = kernels[:, :, 0] * own
    for tap in range(1, min(kernel_size, size)):
        found[:, tap:] += kernels[:, tap:, tap] * own[:, :-tap]
    return found.view_as(rows)
