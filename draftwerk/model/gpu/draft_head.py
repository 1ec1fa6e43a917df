"""A draft head on the device: a token on for every row, in the matrices' own dtype."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, Steps, advance
from draftwerk.model.reference.transfer import to_device, to_host


class GpuDraftHead:
    """A `model.draft_head.head.HeadStep` whose states and candidates can also stay where they are.

    Matrices are in the dtype of the target's embedding; states and norms are float32.
    """

    def __init__(self, head: DraftHead, weights: Weights) -> None:
        """The weights are on the device; the head comes from a file."""
        self.embedding = weights.embedding
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        self.vocabulary = head.vocabulary.to(self.device, torch.int32)
        matrices = (head.gate_up, head.down)
        vectors = (head.keep, head.state_norm, head.token_norm, head.norm)
        self.head = DraftHead(
            self.vocabulary,
            *(matrix.to(self.device, self.dtype) for matrix in matrices),
            *(vector.to(self.device, torch.float32) for vector in vectors),
        )
        self.small = weights.lm_head[self.vocabulary]

    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return the states [n, H] after the tokens, and the `count` best that could follow."""
        said = to_device(torch.tensor(tokens, dtype=torch.int32), self.device)
        after, indices, logprobs = self.step(states, said, count)
        best = self.vocabulary[indices]
        # One way back for both: what is float32 crosses as the bits that it is.
        found = to_host(torch.stack([best, logprobs.view(torch.int32)]))
        return Steps(after, found[0].tolist(), found[1].view(torch.float32).tolist())

    @torch.inference_mode()
    def step(self, states: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states after int32 tokens [n], and the best of the small vocabulary.

        Those are places in it, int64 [n, count], best first, and their log-probabilities, float32;
        a vocabulary of fewer gives fewer.
        """
        after = advance(self.head, states.float(), self.embedding[tokens].float())
        logits = linear(after.to(self.dtype), self.small).float()
        count = min(count, len(self.vocabulary))
        logprobs, indices = logits.log_softmax(-1).topk(count, dim=-1)
        return after, indices, logprobs
