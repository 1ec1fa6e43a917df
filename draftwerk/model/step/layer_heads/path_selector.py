"""The path selector of a DFlash 2: guesses of a place that depend on the one before.

score of b behind a at place i = logit i of b + <A[a] * project(state i), B[b]>
"""

from collections.abc import Callable

from torch import Tensor

from draftwerk.model.reference.sampler import LOSS_MAX, TopTokens
from draftwerk.model.step.layer_heads.block_paths import Followers
from draftwerk.speculative.row_parts.feedback import LOSS_NATS


class PathSelector:
    """Guesses that depend on the one before, of the few tokens with the highest logits."""

    def __init__(
        self,
        predecessors: Tensor,
        successors: Tensor,
        project: Callable[[Tensor], Tensor],
        top_k: int,
        vocabulary: Tensor,
    ) -> None:
        """`predecessors` and `successors` [vocab, rank]; `vocabulary` is by row of the logits."""
        self._predecessors, self._successors = predecessors, successors
        self._project, self._top_k, self._vocabulary = project, top_k, vocabulary

    def __call__(self, states: Tensor, logits: Tensor, _: int) -> Followers:
        """Return what may follow at places of these states [n, H] and logits."""
        values, rows = logits.topk(min(self._top_k, logits.shape[-1]))
        tokens, gates = self._vocabulary[rows], self._project(states)
        behind = self._successors[tokens].float()

        def followers(place: int, before: int) -> TopTokens:
            gate = gates[place] * self._predecessors[before].float()
            scores = (values[place] + behind[place] @ gate).log_softmax(-1)
            best, order = scores.sort(descending=True, stable=True)
            losses = (-best / LOSS_NATS).round().clamp(max=LOSS_MAX).int()
            return tuple(tokens[place][order].tolist()), tuple(losses.tolist())

        return followers
