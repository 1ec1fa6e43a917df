"""A Gemma 4 assistant as a draft head: its layers read the target's pages, and write none."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.draft_head.head import Steps
from draftwerk.model.draft_head.tree import Start
from draftwerk.model.reference.sampler import TopTokens
from draftwerk.model.step.layer_heads.eagle import RowProduct
from draftwerk.model.step.layer_heads.head_chain import HeadChain, grow_chains
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.model.step.layer_heads.mtp import HiddenForward
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk.speculative.row_parts.feedback import HeadNode

Scored = tuple[Tensor, Sequence[Sequence[int]]]
"""Scores [n, m], and the tokens that each row's are of."""


class TokenScores:
    """Scores of the same tokens after every state: those that the stage comes to."""

    def __init__(self, vocabulary: Tensor) -> None:
        self._vocabulary: list[int] = vocabulary.tolist()

    def __call__(self, scores: Tensor, states: Tensor) -> Scored:
        return scores, [self._vocabulary] * len(scores)


class ClusterScores:
    """Scores of the tokens of some clusters: the stage comes to those of all centroids."""

    def __init__(self, tokens: Tensor, head: Tensor, used: int) -> None:
        """`tokens` [clusters, each]; `head` [vocab, hidden]."""
        self._tokens, self._used = tokens, used
        self._rows = head[tokens]

    def __call__(self, scores: Tensor, states: Tensor) -> Scored:
        chosen = scores.topk(self._used, -1).indices
        rows = self._rows[chosen].flatten(1, 2).float()
        found = torch.einsum("nh,nmh->nm", states.float(), rows)
        return found, self._tokens[chosen].flatten(1).tolist()


class Joints(NamedTuple):
    """What joins an assistant to its target."""

    embed: Callable[[Sequence[int]], Tensor]
    """A reader of the target's embeddings, scaled, in float32."""
    before: RowProduct
    after: RowProduct


class AssistantHead:
    """A `Drafter` that keeps nothing of texts; its trees are chains, with rivals at each node."""

    def __init__(
        self,
        stage: HiddenForward,
        joints: Joints,
        scores: Callable[[Tensor, Tensor], Scored],
        rank: RankTokens,
    ) -> None:
        self._stage, self._joints, self._scores, self._rank = stage, joints, scores, rank

    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's draft tree, parents first."""
        return grow_chains(rows, self._guess, budget)

    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return the states [n, H] and no tokens: it is not told where the text before is kept."""
        return Steps(states, [[] for _ in tokens], [[] for _ in tokens])

    @torch.inference_mode()
    def _guess(
        self, chains: Sequence[HeadChain], _: int, looked: int
    ) -> tuple[list[TopTokens], Tensor]:
        said = self._joints.embed([chain.said for chain in chains])
        states = torch.stack([chain.state.float() for chain in chains])
        hidden = self._joints.before(torch.cat([said, states], -1))
        pages = chains[0].start.text.pages
        assert pages is not None, "an assistant reads its target's pages"
        builder = BatchBuilder(pages.block_size, window_first=pages.window_first)
        for chain in chains:
            _add(builder, chain.start)
        scores = self._stage.run_stage(builder.batch(pages.keys.device), pages, hidden)
        assert self._stage.states is not None
        return self._best(scores, looked), self._joints.after(self._stage.states.float())

    def _best(self, scores: Tensor, looked: int) -> list[TopTokens]:
        """Return the best tokens after each row, best first."""
        assert self._stage.states is not None
        own, tokens = self._scores(scores, self._stage.states)
        found = self._rank(own, range(len(own)), min(looked, own.shape[1]))
        return [
            (tuple(these[each] for each in best), lost)
            for these, (best, lost) in zip(tokens, found, strict=True)
        ]


def _add(builder: BatchBuilder, start: Start) -> None:
    """Add a query right behind a text, which sees all of it.

    In the batch it has the text's last slot, which is read and not written.
    """
    text, window = start.text, start.text.window_blocks
    builder.offsets.append((len(builder.tokens), 1, 1))
    builder.add([0], text.length - 1, text.blocks, NO_DRAFT, True, window=window)
