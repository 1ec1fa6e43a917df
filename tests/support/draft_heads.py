"""Draft heads made up for tests: random ones, and one that copies the target's own last
distribution."""

import torch
from torch import Tensor

from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead


def random_head(weights: Weights, vocabulary: Tensor, inner: int = 40, seed: int = 1) -> DraftHead:
    """Return a head with weights of a trained one's size."""
    noise = torch.Generator().manual_seed(seed)
    hidden = weights.embedding.shape[1]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=noise)

    return DraftHead(
        vocabulary=vocabulary.int(),
        gate_up=normal(2 * inner, 2 * hidden) * (2 * hidden) ** -0.5,
        down=normal(hidden, inner) * inner**-0.5,
        keep=normal(hidden) * 0.5,
        state_norm=1 + 0.1 * normal(hidden),
        token_norm=1 + 0.1 * normal(hidden),
        norm=1 + 0.1 * normal(hidden),
    )


def idle_head(weights: Weights) -> DraftHead:
    """Return a head whose distribution at every token is the target's at the first."""
    hidden = weights.embedding.shape[1]
    return DraftHead(
        vocabulary=torch.arange(len(weights.embedding)),
        gate_up=torch.zeros(2, 2 * hidden),
        down=torch.zeros(hidden, 1),
        keep=torch.ones(hidden),
        state_norm=torch.ones(hidden),
        token_norm=torch.ones(hidden),
        norm=torch.ones(hidden),
    )
