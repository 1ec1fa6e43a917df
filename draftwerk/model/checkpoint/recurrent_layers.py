"""The rules of recurrent layers, and the sizes of their states."""

from typing import Literal

import msgspec

Rule = Literal["delta", "mamba"]
"""The rule of a recurrence: the gated delta rule, or Mamba-2."""
STATE_HEADER = 16
"""Numbers before the layers' states in a slot; the first is the position."""
STATE_LAYOUT = "header, and of each layer matrices and inputs"
"""Another one is another fingerprint of what is kept on disk."""


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """The rule by which tokens change the state of a layer: each value head has a matrix that they
    change."""

    rule: Rule = "delta"
    key_heads: int
    value_heads: int
    """Each group of them has one key head."""
    takes_turns: bool = False
    """Whether value heads with the same key head lie apart: a, b, a, b, not a, a, b, b."""
    key_size: int
    value_size: int
    kernel_size: int
    """Tokens that its convolution sees, the own one last."""

    @property
    def width(self) -> int:
        """Numbers that a token comes to."""
        return self.value_heads * self.value_size

    @property
    def channels(self) -> int:
        """Inputs of a token that are convolved: queries, keys, values."""
        return 2 * self.key_heads * self.key_size + self.width

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the inputs' matrix: those, gates of outputs, steps; by the delta rule decays."""
        steps = (self.value_heads,) * (2 if self.rule == "delta" else 1)
        return self.channels, self.width, *steps

    @property
    def state_size(self) -> int:
        """Numbers of one layer's state: the matrices, and inputs of the tokens before."""
        matrix = self.value_heads * self.key_size * self.value_size
        return matrix + (self.kernel_size - 1) * self.channels
