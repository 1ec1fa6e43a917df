"""Where a text differs from the float32 reference's choice, and how near the tie is.

The reference reads the whole text at once, so every token is checked after the same tokens before
it, and one difference does not hide the next. Greedy texts only: without noise the gap between two
logits decides.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.protocol.rounds import NO_DRAFT, chain

BLOCK_SIZE = 16
NEAR = 0.1
"""A gap of two logits, in nats, that rounding to bf16 may well turn around."""


class TokenDifference(NamedTuple):
    """A token that is not the reference's choice."""

    position: int
    """Index in the text."""
    gap: float
    """How far its logit is below the reference's greatest, in nats."""


class TieProbe:
    """The reference on a device: it reads texts and returns where it disagrees."""

    def __init__(self, model: Checkpoint) -> None:
        """`model` is in float32."""
        self.model = model
        self.forward = TorchForward(model.config, model.weights, PaddedAttention())

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], text: Sequence[int]) -> Tensor:
        """Return [text, vocab]: what the reference computes before each token of the text."""
        weights = self.model.weights
        device, dtype = weights.embedding.device, weights.embedding.dtype
        block_count = -(-(len(prompt) + len(text)) // BLOCK_SIZE)
        pages = allocate(self.model.config, block_count, BLOCK_SIZE, dtype, device)
        draft = chain(tuple(text[:-1]), "text") if len(text) > 1 else NO_DRAFT
        builder = BatchBuilder(BLOCK_SIZE)
        builder.add(list(prompt), 0, tuple(range(block_count)), draft, samples=True)
        return self.forward(builder.batch(device), pages)

    def differences(self, prompt: Sequence[int], text: Sequence[int]) -> list[TokenDifference]:
        """Return the tokens of a greedy text that are not the reference's choice."""
        if not text:
            return []
        logits = self.logits(prompt, text)
        said = torch.tensor(list(text), device=logits.device)
        best, tokens = logits.max(dim=1)
        gaps = (best - logits.gather(1, said[:, None])[:, 0]).tolist()
        wrong = (tokens != said).nonzero()[:, 0].tolist()
        return [TokenDifference(position, gaps[position]) for position in wrong]


def summary(
    texts: Sequence[Sequence[int]], found: Sequence[Sequence[TokenDifference]]
) -> dict[str, Any]:
    """Return how many tokens differ, how many of them by a near-tie, and the gaps there."""
    gaps = [difference.gap for differences in found for difference in differences]
    return {
        "tokens": sum(map(len, texts)),
        "differing": len(gaps),
        "near_ties": sum(gap < NEAR for gap in gaps),
        "gap_median": median(gaps) if gaps else 0.0,
        "gap_max": max(gaps, default=0.0),
    }
