"""An MTP layer as a draft head's layer."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.draft_head.head_memory import VOCABULARY_MAX


class HiddenForward(Protocol):
    """A `Forward` that takes hidden states in place of tokens."""

    @property
    def states(self) -> Tensor | None: ...
    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None, /) -> Tensor: ...


class MtpLayer:
    """A `HeadLayer`."""

    def __init__(
        self,
        norms: tuple[Tensor, Tensor],
        epsilon: float,
        vocabulary: Tensor,
        embed: Callable[[Sequence[int]], Tensor],
        fc: Callable[[Tensor], Tensor],
        stage: HiddenForward,
    ) -> None:
        """`norms` are of embeddings and of states.

        `embed` returns float32 embeddings, `fc` takes float32 rows [n, 2 * hidden].
        """
        self.vocabulary: list[int] = vocabulary.tolist()
        self._norms, self._epsilon = tuple(norm.float() for norm in norms), epsilon
        self._embed, self._fc, self._stage = embed, fc, stage

    def __call__(
        self, batch: Batch, pages: Pages, states: Tensor, tokens: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return float32 logits and states [S, hidden] of the batch's outputs."""
        read = self._normed(self._embed(tokens), 0), self._normed(states.float(), 1)
        batch.tokens.zero_()  # they are read above, and may be beyond this layer's vocabulary
        logits = self._stage.run_stage(batch, pages, self._fc(torch.cat(read, -1)))
        assert self._stage.states is not None
        return logits, self._stage.states

    def _normed(self, values: Tensor, which: int) -> Tensor:
        return rms_norm(values, values.shape[-1:], self._norms[which], self._epsilon)


def guessed(vocab_size: int, ends: Sequence[int]) -> Tensor:
    """Return the tokens that an MTP layer guesses, ascending."""
    first = range(min(vocab_size, VOCABULARY_MAX))
    return torch.tensor(sorted({*first, *(each for each in ends if each < vocab_size)}))
