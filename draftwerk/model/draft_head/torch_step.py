"""A draft head in plain torch: the twin of the native one and of the one on a GPU."""

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, Steps, advance
from draftwerk.model.draft_head.tree import Start, build_trees
from draftwerk.speculative.row_parts.feedback import HeadNode


class TorchStep:
    """A `Drafter` in float32."""

    def __init__(self, head: DraftHead, weights: Weights) -> None:
        self.head = DraftHead(*(getattr(head, field.name).float() for field in fields(head)))
        self.vocabulary = head.vocabulary
        self.embedding = weights.embedding
        self.small = weights.lm_head[head.vocabulary].float()

    @torch.inference_mode()
    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return the states [n, H] after the tokens, and the `count` best that could follow."""
        after = advance(self.head, states.float(), self.embedding[tokens].float())
        logprobs = linear(after, self.small).log_softmax(-1)
        values, indices = logprobs.topk(min(count, len(self.vocabulary)))
        return Steps(after, self.vocabulary[indices].tolist(), values.tolist())

    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's draft tree, parents first."""
        return build_trees(self, rows, budget)
